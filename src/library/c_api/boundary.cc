#include "src/library/c_api/boundary.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "src/library/base/bytes.h"
#include "src/library/base/environment.h"
#include "src/library/base/log.h"
#include "src/library/base/native_stack.h"
#include "src/library/base/of_this_thread.h"
#include "src/library/base/printable.h"
#include "src/library/base/python_stack.h"
#include "src/library/c_api/open_scopes.h"
#include "src/library/driver/metering.h"

namespace commpool::internal {

constinit std::atomic<Runtime*> process_runtime{nullptr};

namespace {

// Set before process_runtime, if at all, and for good.
constinit std::atomic<bool> driver_is_measured{false};

Result<recording::RecorderOptions> RecorderOptionsFromEnvironment() {
  const Environment& environment = Environment::Get();
  recording::RecorderOptions options{.directory = environment.record};
  if (!environment.record_limit.empty()) {
    const Result<uint64_t> limit = ParseBytes(environment.record_limit);
    if (!limit.ok()) return limit.status().under("COMMPOOL_RECORD_LIMIT");
    options.limit_bytes = *limit;
  }
  if (environment.record_stacks == "python") options.stack = &StackInPython;
  if (environment.record_stacks == "native") options.stack = &NativeStack;
  if (options.stack != nullptr || environment.record_stacks.empty()) return options;
  return InvalidArgument("COMMPOOL_RECORD_STACKS is \"", Printable(environment.record_stacks.c_str()),
                         "\": it may be python or native");
}

// A program runs as well without its recording, so a failure is a line in the log.
void RecordWhereAsked(Runtime& runtime) {
  if (Environment::Get().record.empty()) return;
  const Result<recording::RecorderOptions> options = RecorderOptionsFromEnvironment();
  const Status status = options.ok() ? runtime.Record(*options, /*only=*/0) : options.status();
  if (!status.ok()) return Log(LogLevel::kWarning, "nothing is recorded: " + status.message());
  FlushRecordingAtExit();
}

Status OpenWith(const LoaderOptions& options, Measure measure) {
  MutexLock lock(ProcessMutex());
  if (const Runtime* runtime = OpenedProcessRuntime()) {
    if (measure == Measure::kCalls && !DriverIsMeasured()) {
      return FailedPrecondition("the driver is open already: initialize() that measures comes before any other call");
    }
    if (options.choice == DriverChoice::kAuto || options.choice == runtime->driver().kind) return Status();
    return FailedPrecondition("another driver is open already: ", runtime->driver().description,
                              "; call initialize() first");
  }
  for (const std::string& slip : Environment::Slips()) Log(LogLevel::kWarning, slip);
  Settings settings = COMMPOOL_TRY(SettingsFromEnvironment());
  std::shared_ptr<const Driver> driver = COMMPOOL_TRY(LoadDriver(options));
  if (measure == Measure::kCalls) {
    const auto metered = std::make_shared<Driver>(*driver);
    COMMPOOL_TRY(MeterDriver(*metered));
    driver = metered;
    driver_is_measured = true;
  }
  auto* const opened = new Runtime(std::move(driver), std::move(settings));
  opened->scopes().ShowIn(open_scopes);
  RecordWhereAsked(*opened);
  process_runtime.store(opened, std::memory_order_release);
  return Status();
}

struct LastError {};

// A thread's last destructors may still call us, after the thread's message string is gone. This buffer has no
// destructor; it cuts long messages.
thread_local constinit std::array<char, 512> late_error{};

}  // namespace

Mutex& ProcessMutex() {
  static Mutex* const mutex = new Mutex(LockRank::kRuntime);
  return *mutex;
}

std::string StackInPython() {
  return PythonStack([](const char* name) { return dlsym(RTLD_DEFAULT, name); });
}

void FlushRecordingAtExit() {
  static const int registered = std::atexit([] {
    if (Runtime* const opened = OpenedProcessRuntime()) opened->recorder().Flush();
  });
  static_cast<void>(registered);
}

Result<Settings> SettingsFromEnvironment() { return Settings::Parse(Environment::Get().configuration); }

Result<Runtime*> RefusingRuntime(const Status& why) {
  static Runtime* refusing = nullptr;
  MutexLock lock(ProcessMutex());
  if (refusing != nullptr) return refusing;
  LoaderOptions options = COMMPOOL_TRY(LoaderOptionsFromEnvironment(DriverChoice::kCuda));
  std::shared_ptr<const Driver> driver = COMMPOOL_TRY(LoadDriver(options));
  refusing = new Runtime(std::move(driver), Settings::Refusing(why));
  return refusing;
}

bool DriverIsMeasured() { return driver_is_measured; }

Status OpenProcessRuntime(DriverChoice choice, Measure measure) {
  LoaderOptions options = COMMPOOL_TRY(LoaderOptionsFromEnvironment(choice));
  if (options.choice == DriverChoice::kAuto) options.choice = choice;
  return OpenWith(options, measure);
}

Result<commpool_block> BlockAt(Runtime& runtime, const void* pointer) {
  const std::shared_ptr<BlockOwner> owner = COMMPOOL_TRY(runtime.addresses().OwnerOf(AddressOf(pointer)));
  return owner->FindBlock(AddressOf(pointer));
}

Result<Runtime*> ProcessRuntime() {
  if (Runtime* runtime = OpenedProcessRuntime()) return runtime;
  LoaderOptions options = COMMPOOL_TRY(LoaderOptionsFromEnvironment(DriverChoice::kCuda));
  COMMPOOL_TRY(OpenWith(options, Measure::kNothing));
  return OpenedProcessRuntime();
}

commpool_status Report(const Status& status) noexcept {
  if (Status* const last = OfThisThread<Status, LastError>()) {
    *last = status;
  } else {
    std::strncpy(late_error.data(), status.message().c_str(), late_error.size() - 1);
  }
  return static_cast<commpool_status>(status.code());
}

Status RefuseCallOf(const UserFunctionKind& running) {
  return FailedPrecondition(
      "commpool was called by ", running.name,
      ", which it may not be: the call that runs this function holds what this one would wait for. Take "
      "the memory from CUDA or another allocator");
}

commpool_status ReportException(const char* call) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    EndWithoutHostMemory(call);
  } catch (const std::exception& exception) {
    return Report(Failure(StatusCode::kInternal, "exception: ", exception.what()));
  } catch (...) {
    return Report(Status(StatusCode::kInternal, "an exception"));
  }
}

const char* LastErrorMessage() {
  const Status* const last = OfThisThread<Status, LastError>();
  return last == nullptr ? late_error.data() : last->message().c_str();
}

}  // namespace commpool::internal
