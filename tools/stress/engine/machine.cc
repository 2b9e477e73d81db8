#include "tools/stress/engine/machine.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "src/base/bytes.h"
#include "src/base/try.h"
#include "tools/stress/emulated_run.h"

namespace commpool::cli {

namespace {

CUresult SkipWait(CUstream, CUevent, unsigned) { return CUDA_SUCCESS; }

// A driver table for the pools alone; the workers' table stays as it is.
std::shared_ptr<const internal::Driver> PoolsDriver(const std::shared_ptr<const internal::Driver>& driver,
                                                    Plant plant) {
  if (plant != Plant::kSkipWait) return driver;
  auto planted = std::make_shared<internal::Driver>(*driver);
  planted->cuda.cuStreamWaitEvent = SkipWait;
  return planted;
}

}  // namespace

Result<std::unique_ptr<StressMachine>> StressMachine::Make(std::shared_ptr<const internal::Driver> driver, Plant plant,
                                                           internal::Streams streams) {
  std::unique_ptr<StressMachine> machine(new StressMachine(std::move(driver), streams));
  machine->leaks_before_ = EmulatorLines(machine->driver(), "commpoolEmulatorLeaks");
  machine->context_ = COMMPOOL_TRY(internal::PrimaryContext::Retain(machine->driver(), 0));
  machine->runtime_ = std::make_unique<internal::Runtime>(PoolsDriver(machine->driver_, plant));
  COMMPOOL_TRY(machine->MakePools());
  return machine;
}

Status StressMachine::MakePools() {
  std::vector<internal::PoolConfiguration> configurations(4);
  configurations[0].name = "fixed";
  configurations[1].name = "expandable";
  configurations[1].mode = internal::Mode::kExpandable;
  configurations[2].name = "threshold";
  configurations[2].release_threshold_bytes = 16 * internal::kMiB;
  configurations[3].name = "limited";
  configurations[3].mode = internal::Mode::kExpandable;
  configurations[3].limit_bytes = 48 * internal::kMiB;
  for (internal::PoolConfiguration& configuration : configurations) {
    configuration.streams = streams_;
    const internal::PoolHandle pool = COMMPOOL_TRY(runtime_->CreatePool(std::move(configuration)));
    pools_.push_back(pool);
  }
  return Status();
}

void StressMachine::Violate(const std::string& what) {
  std::scoped_lock lock(mutex_);
  violations_.push_back(what);
}

bool StressMachine::Broken() {
  if (wrong_bytes_.load(std::memory_order_relaxed) != 0 || !EmulatorLines(*driver_, "commpoolEmulatorReports").empty())
    return true;
  std::scoped_lock lock(mutex_);
  return !violations_.empty();
}

void StressMachine::CheckInvariants() {
  for (size_t pool = 0; pool < pools_.size(); ++pool) Get(pool).CheckInvariants();
}

void StressMachine::TrimAll(internal::Pool& pool) {
  // A thread of the driver reports the end of a graph some time later.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  for (;;) {
    Result<uint64_t> trimmed = pool.Trim(0);
    if (!trimmed.ok()) return Violate(trimmed.status().message());
    const commpool_statistics counters = pool.Statistics();
    const bool done = counters.reserved_bytes.current == 0 || counters.allocated_blocks.current != 0;
    if (done || std::chrono::steady_clock::now() > deadline) return;
    std::this_thread::yield();
  }
}

std::vector<std::string> StressMachine::Finish() {
  for (size_t pool = 0; pool < pools_.size(); ++pool) {
    const commpool_statistics counters = Get(pool).Statistics();
    if (counters.allocated_blocks.current != 0) {
      Violate("leak: pool " + Get(pool).name() + " still holds " + std::to_string(counters.allocated_blocks.current) +
              " blocks, " + internal::FormatBytes(counters.allocated_bytes.current));
    }
    TrimAll(Get(pool));
    CheckInvariants();
  }
  for (const internal::PoolHandle pool : pools_) {
    Status status = runtime_->DestroyPool(pool);
    if (!status.ok()) Violate(status.message());
  }
  runtime_.reset();
  context_ = internal::PrimaryContext();
  if (const uint64_t wrong = wrong_bytes_.load()) Violate(std::to_string(wrong) + " bytes of blocks were overwritten");
  for (const std::string& report : EmulatorLines(*driver_, "commpoolEmulatorReports")) Violate(report);
  for (const std::string& leak : EmulatorLines(*driver_, "commpoolEmulatorLeaks")) {
    const auto known = std::find(leaks_before_.begin(), leaks_before_.end(), leak);
    if (known == leaks_before_.end()) Violate("leak: " + leak);
  }
  return violations_;
}

}  // namespace commpool::cli
