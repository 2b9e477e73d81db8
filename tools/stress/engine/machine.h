// What `commpool_stress engine` runs on: a runtime on the emulated driver, its pools, and the violations so far.
//
// Any thread, but Finish, which comes after every worker has ended.
#ifndef COMMPOOL_TOOLS_STRESS_ENGINE_MACHINE_H_
#define COMMPOOL_TOOLS_STRESS_ENGINE_MACHINE_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/driver/handles.h"
#include "src/driver/loader.h"
#include "src/pool/runtime.h"

namespace commpool::cli {

// Faults to plant; the run must find them.
enum class Plant { kNone, kSkipWait, kDoubleFree, kUseAfterFree, kLeak, kUnannouncedCapture, kDeadStream };

class StressMachine {
 public:
  // Makes four pools on device 0: fixed, expandable, fixed with a release threshold, expandable with a small limit.
  // REQUIRES: the driver is an emulated one.
  static Result<std::unique_ptr<StressMachine>> Make(std::shared_ptr<const internal::Driver> driver, Plant plant,
                                                     internal::Streams streams);
  StressMachine(const StressMachine&) = delete;
  StressMachine& operator=(const StressMachine&) = delete;

  const internal::Driver& driver() const { return *driver_; }
  const internal::PrimaryContext& context() const { return context_; }
  internal::Runtime& runtime() { return *runtime_; }
  const std::vector<internal::PoolHandle>& pools() const { return pools_; }
  internal::Pool& Get(size_t pool) { return *runtime_->pools().Find(pools_[pool]).value(); }
  // Whether a worker tells the pools before it destroys a stream.
  internal::Streams streams() const { return streams_; }
  // Whether the pool may run out of memory without a violation, because it has a limit.
  bool MayRunOut(size_t pool) const { return pool == pools_.size() - 1; }

  // Every step holds it shared; a capture holds it alone.
  std::shared_mutex& capture_mutex() { return capture_mutex_; }

  void Violate(const std::string& what);
  // Whether anything is wrong by now; asks the emulator too.
  bool Broken();
  // Checks every pool; the engines' own CHECKs abort.
  void CheckInvariants();
  void CountWrongBytes(uint64_t bytes) { wrong_bytes_.fetch_add(bytes, std::memory_order_relaxed); }

  // Ends the pools and looks for what is left. Returns all violations.
  std::vector<std::string> Finish();

 private:
  StressMachine(std::shared_ptr<const internal::Driver> driver, internal::Streams streams)
      : driver_(std::move(driver)), streams_(streams) {}

  Status MakePools();
  void TrimAll(internal::Pool& pool);

  std::shared_ptr<const internal::Driver> driver_;
  const internal::Streams streams_;
  std::vector<std::string> leaks_before_;
  internal::PrimaryContext context_;
  std::unique_ptr<internal::Runtime> runtime_;
  std::vector<internal::PoolHandle> pools_;
  std::atomic<uint64_t> wrong_bytes_{0};
  std::shared_mutex capture_mutex_;
  std::mutex mutex_;
  std::vector<std::string> violations_;
};

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_STRESS_ENGINE_MACHINE_H_
