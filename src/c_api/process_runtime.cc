#include "src/c_api/process_runtime.h"

#include <utility>

#include "src/base/mutex.h"

namespace commpool {

constinit std::atomic<Runtime*> process_runtime{nullptr};

namespace {

Mutex& OpeningMutex() {
  static Mutex* const mutex = new Mutex(LockRank::kRuntime);
  return *mutex;
}

Status OpenWith(const LoaderOptions& options) {
  MutexLock lock(OpeningMutex());
  if (const Runtime* runtime = OpenedProcessRuntime()) {
    if (options.choice == DriverChoice::kAuto || options.choice == runtime->driver().kind) return Status();
    return Status(StatusCode::kFailedPrecondition, "another driver is open already: " + runtime->driver().description +
                                                       "; call commpool_initialize first");
  }
  Result<std::shared_ptr<const Driver>> driver = LoadDriver(options);
  if (!driver.ok()) return driver.status();
  process_runtime.store(new Runtime(std::move(*driver)), std::memory_order_release);
  return Status();
}

}  // namespace

Status OpenProcessRuntime(DriverChoice choice) {
  Result<LoaderOptions> options = LoaderOptionsFromEnvironment(choice);
  if (!options.ok()) return options.status();
  if (options->choice == DriverChoice::kAuto) options->choice = choice;
  return OpenWith(*options);
}

Result<Runtime*> ProcessRuntime() {
  if (Runtime* runtime = OpenedProcessRuntime()) return runtime;
  Result<LoaderOptions> options = LoaderOptionsFromEnvironment(DriverChoice::kCuda);
  if (!options.ok()) return options.status();
  Status status = OpenWith(*options);
  if (!status.ok()) return status;
  return OpenedProcessRuntime();
}

}  // namespace commpool
