#include "tools/stress/order/machine.h"

#include <climits>
#include <utility>

#include "src/emulator/extension.h"
#include "src/library/base/try.h"
#include "tools/stress/emulated_run.h"

namespace commpool::cli::stress_order {

namespace {

constexpr size_t kMostViolations = 4;  // further ones follow from the first
constexpr const char* kReports = "commpoolEmulatorReports";

Result<std::shared_ptr<const internal::Driver>> Load(Plant plant) {
  if (plant == Plant::kSkipWait) return LoadEmulatedDriver("--plant skip-wait: the emulator alone skips waits");
  return internal::LoadDriver(COMMPOOL_TRY(internal::LoaderOptionsFromEnvironment(internal::DriverChoice::kEmulated)));
}

}  // namespace

Result<std::unique_ptr<Machine>> Machine::Open(Plant plant, Judge judge) {
  std::unique_ptr<Machine> machine(new Machine(COMMPOOL_TRY(Load(plant)), plant, judge));
  if (commpool_initialize(static_cast<commpool_driver>(machine->driver().kind), COMMPOOL_MEASURE_NOTHING) !=
      COMMPOOL_OK) {
    return Status(StatusCode::kFailedPrecondition, commpool_last_error());
  }
  int devices = 0;
  COMMPOOL_TRY(
      internal::CheckCuda(machine->driver(), machine->cuda().cuDeviceGetCount(&devices), {.call = "cuDeviceGetCount"}));
  for (int device = 0; device < devices; ++device) {
    machine->contexts_.push_back(COMMPOOL_TRY(internal::PrimaryContext::Retain(machine->driver(), device)));
  }
  return machine;
}

void Machine::SkipWaits(bool skip) const {
  using Inject = decltype(&commpoolEmulatorInjectFault);
  using Clear = decltype(&commpoolEmulatorClearFaults);
  static const auto inject = reinterpret_cast<Inject>(driver_->extension("commpoolEmulatorInjectFault"));
  static const auto clear = reinterpret_cast<Clear>(driver_->extension("commpoolEmulatorClearFaults"));
  if (skip) return inject("cuStreamWaitEvent", 0, INT_MAX, CUDA_SUCCESS);
  clear();
}

void Machine::Violate(uint64_t step, const std::string& what, const MemoryRange& where) {
  broken_.store(true);
  std::vector<std::string> lines = {"violation: step " + std::to_string(step) + ": " + what};
  for (const std::string& line : history_.About(where)) lines.push_back("  " + line);
  std::scoped_lock lock(mutex_);
  if (violations_.size() >= kMostViolations) return;
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  violations_.push_back(std::move(text));
}

bool Machine::Broken(uint64_t step) {
  if (judge_ == Judge::kBytes) return broken_.load();
  for (const std::string& report : EmulatorLines(*driver_, kReports)) {
    const std::vector<MemoryRange> ranges = RangesIn(report);
    Violate(step, report, ranges.empty() ? MemoryRange() : ranges.front());
  }
  if (const auto clear = reinterpret_cast<void (*)()>(driver_->extension("commpoolEmulatorClearReports"))) clear();
  return broken_.load();
}

std::vector<std::string> Machine::TakeViolations() {
  std::scoped_lock lock(mutex_);
  broken_.store(false);
  return std::exchange(violations_, {});
}

}  // namespace commpool::cli::stress_order
