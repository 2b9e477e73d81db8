#include "src/c_api/process_runtime.h"

#include <atomic>
#include <utility>

#include "src/base/mutex.h"
#include "src/driver/metering.h"

namespace commpool {

namespace {

// Never destroyed: blocks may be freed by other static destructors, in any order, until the process is gone.
struct Process {
  Mutex mutex{LockRank::kRuntime};
  std::atomic<Runtime*> runtime{nullptr};
  std::atomic<bool> measured{false};
};

Process& TheProcess() {
  static Process* const process = new Process();
  return *process;
}

Result<std::shared_ptr<const Driver>> Metered(const Driver& driver) {
  auto metered = std::make_shared<Driver>(driver);
  Status status = MeterDriver(*metered);
  if (!status.ok()) return status;
  return std::shared_ptr<const Driver>(std::move(metered));
}

Status OpenWith(const LoaderOptions& options) {
  MutexLock lock(TheProcess().mutex);
  if (const Runtime* runtime = OpenedProcessRuntime()) {
    if (options.choice == DriverChoice::kAuto || options.choice == runtime->driver().kind) return Status();
    return Status(StatusCode::kFailedPrecondition, "another driver is open already: " + runtime->driver().description +
                                                       "; call commpool_initialize first");
  }
  Result<std::shared_ptr<const Driver>> driver = LoadDriver(options);
  if (driver.ok() && DriverIsMeasured()) driver = Metered(**driver);
  if (!driver.ok()) return driver.status();
  TheProcess().runtime.store(new Runtime(std::move(*driver)), std::memory_order_release);
  return Status();
}

}  // namespace

Runtime* OpenedProcessRuntime() { return TheProcess().runtime.load(std::memory_order_acquire); }

Status MeasureDriver() {
  MutexLock lock(TheProcess().mutex);
  if (OpenedProcessRuntime() != nullptr) {
    return Status(StatusCode::kFailedPrecondition,
                  "the driver is open already: measure it before commpool_initialize and any other call");
  }
  TheProcess().measured = true;
  return Status();
}

bool DriverIsMeasured() { return TheProcess().measured; }

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
