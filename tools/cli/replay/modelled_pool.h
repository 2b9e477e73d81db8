// A pool in modelled time: the engine that a real pool has, asked in the same order, where calls of the driver cost
// what the emulator says and change nothing.
//
// What `commpool replay --sweep` needs a thousand times over, with constants that no option of a pool sets. That it
// reserves what the real pool reserves, sweep_test says. One thread.
#ifndef COMMPOOL_TOOLS_CLI_REPLAY_MODELLED_POOL_H_
#define COMMPOOL_TOOLS_CLI_REPLAY_MODELLED_POOL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "src/engine/caching_engine.h"
#include "src/engine/size_policy.h"
#include "tools/cli/replay/modelled_device.h"

namespace commpool::cli {

class ModelledPool {
 public:
  using Address = internal::engine::Address;

  virtual ~ModelledPool() = default;

  Address Allocate(uint64_t bytes, uint32_t stream);
  void Free(Address address);
  void RecordStream(Address address, uint32_t stream);

  uint64_t peak_reserved_bytes() const { return engine().counters().reserved_bytes.peak; }
  uint64_t waits() const { return waits_; }
  uint64_t device_waits() const { return device_waits_; }

  virtual const internal::engine::CachingEngine& engine() const = 0;
  virtual internal::engine::CachingEngine& engine() = 0;

 protected:
  explicit ModelledPool(ModelledDevice& device) : device_(device) {}

  // What can be done for a request that free memory does not serve.
  virtual void Grow(uint64_t bytes, uint32_t stream) = 0;

  void PollFences();
  void CountWait() { ++waits_; }
  ModelledDevice& device() { return device_; }

 private:
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

  Address ServeSlowly(uint64_t bytes, uint32_t stream);
  std::optional<Address> ServeFrom(uint64_t bytes, uint32_t stream, internal::engine::Reuse reuse);
  // The stream waits for what the block is still used by.
  Address HandOut(const internal::engine::Served& served, uint64_t requested, uint32_t stream);
  bool DrainCaches();
  bool Give(Address address, const Cacheable& block);
  void TakeDownTo(Cache& cache, uint64_t keep_bytes);

  ModelledDevice& device_;
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

std::unique_ptr<ModelledPool> MakeExpandablePool(ModelledDevice& device, const internal::engine::Slack& slack);
std::unique_ptr<ModelledPool> MakeFixedPool(ModelledDevice& device);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_REPLAY_MODELLED_POOL_H_
