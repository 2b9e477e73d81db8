// Handle -> pool. Handles are never reused, so a stale one is an error and not a crash. Any thread.
#ifndef COMMPOOL_SRC_POOL_SHARED_POOL_TABLE_H_
#define COMMPOOL_SRC_POOL_SHARED_POOL_TABLE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "commpool/status.h"
#include "src/base/host_reserve.h"
#include "src/base/mutex.h"

namespace commpool::internal {

class Pool;

using PoolHandle = uint64_t;

class PoolTable {
 public:
  // A handle for a pool that is about to be added: it must know its handle before anybody finds it.
  PoolHandle NextHandle();
  void Add(PoolHandle handle, std::shared_ptr<Pool> pool, int device = 0);
  // kNotFound for a handle that never was or has ended.
  Result<std::shared_ptr<Pool>> Find(PoolHandle handle) const;
  // `title`: for messages when the pool is gone.
  Result<std::shared_ptr<Pool>> Remove(PoolHandle handle, std::string title = {});

  // The device of a pool that has its handle, without a lock. Nothing where there is none, or only Find can tell.
  std::optional<int> DeviceAtOnce(PoolHandle handle) const {
    const uint64_t word = devices_[handle % kDevices].load(std::memory_order_acquire);
    return word >> kDeviceBits == handle ? std::make_optional(static_cast<int>(word & kMostDevice)) : std::nullopt;
  }
  // Of a pool whose handle has ended, by the title that it had: "pool gradients (vmm, device 1)". Long ago, by number.
  std::string TitleOfRemoved(PoolHandle handle) const;

  // Pools without a handle that the table still looks after: none that is gone.
  size_t removed() const;

  // Every pool with a handle, oldest first, then those without that live blocks keep alive.
  ReservedVector<std::shared_ptr<Pool>> All() const;

 private:
  static constexpr size_t kDevices = 256;
  static constexpr int kDeviceBits = 8;
  static constexpr uint64_t kMostDevice = (1 << kDeviceBits) - 1;
  static constexpr size_t kTitlesKept = 64;

  struct Title {
    PoolHandle handle = 0;
    std::string text;
  };

  mutable Mutex mutex_{LockRank::kPoolTable};
  PoolHandle next_ COMMPOOL_GUARDED_BY(mutex_) = 1;
  ReservedMap<PoolHandle, std::shared_ptr<Pool>> pools_ COMMPOOL_GUARDED_BY(mutex_);
  // Handle and device of the pool added last of those that share a place.
  std::array<std::atomic<uint64_t>, kDevices> devices_ = {};
  std::array<Title, kTitlesKept> titles_ COMMPOOL_GUARDED_BY(mutex_);  // of those removed last
  size_t titles_ever_ COMMPOOL_GUARDED_BY(mutex_) = 0;
  ReservedVector<std::weak_ptr<Pool>> removed_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SHARED_POOL_TABLE_H_
