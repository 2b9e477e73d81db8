// A pool in modelled time: a real pool's engine, asked in the same order. It carries out growth plans by driver calls
// that cost as much as in the emulator and change nothing.
//
// `commpool_stress sweep` needs a thousand of them, with constants that no option of a pool sets. sweep_test checks
// that it reserves as much as the real pool. One thread.
#ifndef COMMPOOL_TOOLS_STRESS_SWEEP_MODELLED_POOL_H_
#define COMMPOOL_TOOLS_STRESS_SWEEP_MODELLED_POOL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/engine/caching_engine.h"
#include "src/engine/size_policy.h"
#include "tools/stress/sweep/modelled_device.h"
#include "tools/stress/sweep/modelled_progress.h"

namespace commpool::cli {

class ModelledPool {
 public:
  using Address = internal::engine::Address;

  ModelledPool(ModelledDevice& device, std::unique_ptr<internal::engine::CachingEngine> engine)
      : device_(device), engine_(std::move(engine)), progress_(device, *engine_) {}

  Address Allocate(uint64_t bytes, uint32_t stream);
  void Free(Address address);
  void RecordStream(Address address, uint32_t stream);

  uint64_t peak_reserved_bytes() const { return engine_->counters().reserved_bytes.peak; }
  uint64_t waits() const { return waits_; }
  uint64_t device_waits() const { return device_waits_; }

 private:
  static constexpr uint64_t kApart = uint64_t{512} << 30;  // ranges never touch

  // A small block that a thread's cache may take.
  struct Cacheable {
    uint32_t stream = 0;
    uint32_t size_class = 0;
  };
  // The cache of one stream.
  struct Cache {
    std::map<uint32_t, std::vector<Address>, std::greater<>> bins;  // by size class
    uint64_t bytes = 0;
  };

  // Makes room for a request that free memory cannot serve.
  void Grow(uint64_t bytes, uint32_t stream);
  void Do(const internal::engine::GrowthStep& step);
  void PollFences();
  Address ServeSlowly(uint64_t bytes, uint32_t stream);
  std::optional<Address> ServeFrom(uint64_t bytes, uint32_t stream, internal::engine::Reuse reuse);
  // Makes the stream wait for the block's remaining uses.
  Address HandOut(const internal::engine::Served& served, uint64_t requested, uint32_t stream);
  bool DrainCaches();
  bool Give(Address address, const Cacheable& block);
  void TakeDownTo(Cache& cache, uint64_t keep_bytes);

  ModelledDevice& device_;
  const std::unique_ptr<internal::engine::CachingEngine> engine_;
  ModelledProgress progress_;
  Address next_range_ = kApart;
  std::unordered_map<Address, Cacheable> cacheable_;
  std::map<uint32_t, Cache> caches_;
  struct Recorded {
    uint32_t stream = 0;
    ModelledDevice::Mark mark;
  };
  std::map<internal::engine::Fence, Recorded> fences_;
  internal::engine::Fence next_fence_ = 1;
  uint64_t waits_ = 0;
  uint64_t device_waits_ = 0;
};

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_STRESS_SWEEP_MODELLED_POOL_H_
