// PoolTable: handle -> pool. Handles are never reused, so a stale one is an error and not a crash. The runtime owns it.
// Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/mutex.h"

namespace commpool::internal {

class Pool;

// Never 0.
using PoolHandle = uint64_t;

// Runtime adds and removes pools; every call with a handle finds its pool here. Lock: its own, of rank `pool table`. It
// owns a share of each pool that has a handle, and of no other.
class PoolTable {
 public:
  // A handle for a pool that will be added: the pool must know its handle before another thread finds it.
  PoolHandle NextHandle();
  // From now on every thread finds the pool. `device`: the pool's.
  void Add(PoolHandle handle, std::shared_ptr<Pool> pool, int device = 0);
  // kNotFound for a handle that never existed or has ended.
  Result<std::shared_ptr<Pool>> Find(PoolHandle handle) const;
  // `title`: for messages after the pool's end. The caller ends the pool. Of two threads one gets it.
  Result<std::shared_ptr<Pool>> Remove(PoolHandle handle, std::string title = {});

  // The device of a pool, without a lock. Nothing where the handle has ended, or only Find can tell. A scope that
  // begins needs the device and nothing else of its pool.
  std::optional<int> DeviceAtOnce(PoolHandle handle) const {
    const uint64_t word = devices_[handle % kDevices].load(std::memory_order_acquire);
    return word != 0 && word >> kDeviceBits == handle ? std::make_optional(static_cast<int>(word & kMostDevice))
                                                      : std::nullopt;
  }
  // The title that a removed pool had, such as "pool gradients (vmm, device 1)"; for older ones only the number. For
  // the error of a scope that still names the pool.
  std::string TitleOfRemoved(PoolHandle handle) const;

  // How many removed pools the table still knows, because they still exist.
  size_t removed() const;

  // Every pool with a handle, oldest first, then those without one that live blocks keep alive. A copy: the caller
  // calls the pools without the lock, and they live meanwhile.
  std::vector<std::shared_ptr<Pool>> All() const;

 private:
  // Pools with handles so far apart share a place; the older one is then found by Find alone.
  static constexpr size_t kDevices = 256;
  static constexpr int kDeviceBits = 8;
  static constexpr uint64_t kMostDevice = (1 << kDeviceBits) - 1;
  static constexpr size_t kTitlesKept = 64;

  mutable Mutex mutex_{LockRank::kPoolTable};
  PoolHandle next_ COMMPOOL_GUARDED_BY(mutex_) = 1;
  std::map<PoolHandle, std::shared_ptr<Pool>> pools_ COMMPOOL_GUARDED_BY(mutex_);
  // Handle and device of the newest pool at each place. A word: the handle above, the device in the lowest bits. 0:
  // none.
  std::array<std::atomic<uint64_t>, kDevices> devices_ = {};
  std::deque<std::pair<PoolHandle, std::string>> titles_ COMMPOOL_GUARDED_BY(mutex_);  // of the pools removed last
  // So that what destroyed pools still hold can be released (All). Pools that are gone leave at the next Remove.
  std::vector<std::weak_ptr<Pool>> removed_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal
