#include "src/c_api/process_runtime.h"

#include <utility>

#include "src/base/environment.h"
#include "src/base/mutex.h"
#include "src/base/try.h"
#include "src/c_api/open_scopes.h"
#include "src/driver/metering.h"

namespace commpool::internal {

constinit std::atomic<Runtime*> process_runtime{nullptr};

namespace {

// What a thread that opens the runtime needs. Never destroyed, like the runtime.
struct Opening {
  Mutex mutex{LockRank::kRuntime};
  std::atomic<bool> measured{false};
};

Opening& TheOpening() {
  static Opening* const opening = new Opening();
  return *opening;
}

Status OpenWith(const LoaderOptions& options) {
  MutexLock lock(TheOpening().mutex);
  if (const Runtime* runtime = OpenedProcessRuntime()) {
    if (options.choice == DriverChoice::kAuto || options.choice == runtime->driver().kind) return Status();
    return Status(StatusCode::kFailedPrecondition, "another driver is open already: " + runtime->driver().description +
                                                       "; call commpool_initialize first");
  }
  Settings settings = COMMPOOL_TRY(SettingsFromEnvironment());
  std::shared_ptr<const Driver> driver = COMMPOOL_TRY(LoadDriver(options));
  if (DriverIsMeasured()) {
    const auto metered = std::make_shared<Driver>(*driver);
    COMMPOOL_TRY(MeterDriver(*metered));
    driver = metered;
  }
  auto* const opened = new Runtime(std::move(driver), std::move(settings));
  opened->scopes().ShowIn(open_scopes);
  process_runtime.store(opened, std::memory_order_release);
  return Status();
}

}  // namespace

Result<Settings> SettingsFromEnvironment() { return Settings::Parse(Environment::Get().configuration); }

Result<Runtime*> RefusingRuntime(const Status& why) {
  static Runtime* refusing = nullptr;
  MutexLock lock(TheOpening().mutex);
  if (refusing != nullptr) return refusing;
  LoaderOptions options = COMMPOOL_TRY(LoaderOptionsFromEnvironment(DriverChoice::kCuda));
  std::shared_ptr<const Driver> driver = COMMPOOL_TRY(LoadDriver(options));
  refusing = new Runtime(std::move(driver), Settings::Refusing(why));
  return refusing;
}

Status MeasureDriver() {
  MutexLock lock(TheOpening().mutex);
  if (OpenedProcessRuntime() != nullptr) {
    return Status(StatusCode::kFailedPrecondition,
                  "the driver is open already: measure it before commpool_initialize and any other call");
  }
  TheOpening().measured = true;
  return Status();
}

bool DriverIsMeasured() { return TheOpening().measured; }

Status OpenProcessRuntime(DriverChoice choice) {
  LoaderOptions options = COMMPOOL_TRY(LoaderOptionsFromEnvironment(choice));
  if (options.choice == DriverChoice::kAuto) options.choice = choice;
  return OpenWith(options);
}

Result<Runtime*> ProcessRuntime() {
  if (Runtime* runtime = OpenedProcessRuntime()) return runtime;
  LoaderOptions options = COMMPOOL_TRY(LoaderOptionsFromEnvironment(DriverChoice::kCuda));
  COMMPOOL_TRY(OpenWith(options));
  return OpenedProcessRuntime();
}

}  // namespace commpool::internal
