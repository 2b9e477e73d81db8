// PoolRoom: how much memory a pool may still take: under its own limit, its device's limit, and beside the headroom.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "commpool/status.h"
#include "src/library/backing/backing.h"
#include "src/library/pool/basis/pool_basis.h"
#include "src/library/pool/blocks/block_store.h"
#include "src/library/pool/shared/memory_account.h"

namespace commpool::internal {

// SegmentStore has one. The room of all of a pool's memory is taken and returned here. Any thread may ask; what takes
// and returns holds the growth lock.
class PoolRoom {
 public:
  PoolRoom(const PoolBasis& basis, const BlockStore& blocks, const Backing& backing,
           std::shared_ptr<MemoryAccount> account, uint64_t granularity)
      : basis_(basis), blocks_(blocks), backing_(backing), account_(std::move(account)), granularity_(granularity) {}

  // kOutOfMemory where the limit of the pool or of its device leaves no room, or the device's headroom would not stay
  // free: then the driver is asked. Comes before the memory is made, so no two pools make memory for the last bytes of
  // a limit.
  Result<Room> Take(uint64_t bytes) const;
  // The room of memory that is about to go: it returns with its object. Bytes that sleep have returned theirs before.
  Room Of(uint64_t bytes) COMMPOOL_REQUIRES(kGrowthLock);
  // For memory that has gone back to the driver.
  void Return(uint64_t bytes) COMMPOOL_REQUIRES(kGrowthLock) { const Room returned = Of(bytes); }
  // The pool's memory has gone to sleep: other pools may have its room.
  void Sleep(uint64_t bytes) COMMPOOL_REQUIRES(kGrowthLock);
  // Takes the room of what sleeps again, for it is about to wake. kOutOfMemory under the device's limit.
  Status TakeToWake() COMMPOOL_REQUIRES(kGrowthLock);
  void Wake() COMMPOOL_REQUIRES(kGrowthLock) { asleep_bytes_.store(0, std::memory_order_relaxed); }
  // Reserved bytes without physical memory, and without room; 0 while the pool is awake.
  uint64_t asleep_bytes() const { return asleep_bytes_.load(std::memory_order_relaxed); }

  // The device's free memory; UINT64_MAX for memory of the host, of which the device's says nothing, and where the
  // driver does not tell. Asks the driver.
  uint64_t FreeOnDevice() const;
  // The bytes that must go back before the device's headroom is free again; 0 without one. Asks the driver.
  uint64_t LackingHeadroom() const;
  // Whether the pool's own limit, apart from its device's, allows so many bytes more.
  bool FitsOwnLimit(uint64_t bytes) const;
  // The pool's budget, if it has no room for so many bytes: then only pools of the budget can help. Else empty.
  std::string BudgetThatLacks(uint64_t bytes) const {
    return account_->PartLacks(bytes) ? basis_.configuration.budget : std::string();
  }
  // What pools of the pool's budget share; null without one.
  const MemoryAccount* budget() const { return basis_.configuration.budget.empty() ? nullptr : account_.get(); }
  // Whether the device's limit would allow the request if no pool held memory.
  bool FitsEmptyPlacement(uint64_t bytes) const { return bytes <= account_->limit(); }
  // kOutOfMemory for a request that even an empty device could not serve.
  Status CheckPossible(uint64_t bytes) const;
  // The bytes that the limits of the pool and of its placement still allow. A moment later it may be less: Take
  // decides.
  uint64_t Left() const;
  // How much all pools of the placement have reserved together. Once that exceeds CollectionBytes, this pool releases
  // unused memory before it grows. The threshold is a share of the placement's limit, or of its memory where it has no
  // limit; UINT64_MAX: never.
  uint64_t TakenByAll() const { return account_->taken(); }
  uint64_t CollectionBytes() const;

 private:
  // kOutOfMemory where so many bytes more would take from the device's headroom.
  Status CheckHeadroom(uint64_t bytes) const;

  const PoolBasis& basis_;
  const BlockStore& blocks_;
  const Backing& backing_;
  // Of the pool's device or host node. Shared with the other pools there.
  const std::shared_ptr<MemoryAccount> account_;
  const uint64_t granularity_;
  std::atomic<uint64_t> asleep_bytes_{0};  // changes under the growth lock
};

}  // namespace commpool::internal
