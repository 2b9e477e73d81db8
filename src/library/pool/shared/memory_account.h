// MemoryAccount: what pools have reserved together, and its limit: all pools of one placement (a device, or a host NUMA
// node), or those of a budget there, whose bytes count in the placement's account too. Any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "src/library/base/bytes.h"
#include "src/library/base/check.h"
#include "src/library/base/mutex.h"
#include "src/library/pool/shared/taken.h"

namespace commpool::internal {

// DeviceState owns the account of its device, DeviceTable those of host nodes and budgets. PoolRoom takes and returns
// room. Lock: its own, a leaf. KeptBlocks has one of its own, to count the copies of a sleeping pool. It owns a number
// alone: the memory is its taker's.
class MemoryAccount {
 public:
  // `place`: for messages, such as "device 1". `capacity`: how much memory there is, UINT64_MAX where unknown.
  // `whole`: of a budget, the account that its bytes count in too.
  explicit MemoryAccount(std::string place = "", uint64_t capacity = UINT64_MAX,
                         std::shared_ptr<MemoryAccount> whole = nullptr, uint64_t limit = UINT64_MAX)
      : place_(std::move(place)), capacity_(capacity), whole_(std::move(whole)), limit_(limit) {}

  const std::string& place() const { return place_; }
  uint64_t capacity() const { return capacity_; }
  // What was taken before stays, even where it is more than the new limit.
  void SetLimit(uint64_t bytes) {
    MutexLock lock(mutex_);
    limit_ = bytes;
  }

  // What pools are to leave to others of the place's memory. A wish: nobody keeps it free.
  void SetHeadroom(uint64_t bytes) { headroom_.store(bytes, std::memory_order_relaxed); }
  uint64_t headroom() const {
    return whole_ != nullptr ? whole_->headroom() : headroom_.load(std::memory_order_relaxed);
  }

  // Takes bytes, if they fit under the limit. They count until Return. All of them or none. Room (below) returns them
  // where the memory could not be made.
  bool Take(uint64_t bytes) {
    if (whole_ != nullptr && !whole_->Take(bytes)) return false;
    {
      MutexLock lock(mutex_);
      if (taken_ <= limit_ && bytes <= limit_ - taken_) {
        taken_ += bytes;
        return true;
      }
    }
    if (whole_ != nullptr) whole_->Return(bytes);
    return false;
  }
  // For bytes whose memory has gone back to the driver, or sleeps.
  void Return(uint64_t bytes) {
    {
      MutexLock lock(mutex_);
      COMMPOOL_CHECK(bytes <= taken_, "an account gets more memory back than pools took");
      taken_ -= bytes;
    }
    if (whole_ != nullptr) whole_->Return(bytes);
  }
  // Once the memory exists (Room::Keep). What others are about to make counts as well.
  void NotePeak() {
    if (whole_ != nullptr) whole_->NotePeak();
    MutexLock lock(mutex_);
    peak_ = std::max(peak_, taken_);
  }
  // How much Take would still grant. May be less by the time of the Take.
  uint64_t Room() const { return std::min(OwnRoom(), whole_ != nullptr ? whole_->OwnRoom() : UINT64_MAX); }
  // Whether a budget is what lacks room: then only its own pools can give some.
  bool PartLacks(uint64_t bytes) const { return whole_ != nullptr && bytes > OwnRoom(); }
  // The lower one, where a budget's is beyond its device's.
  uint64_t limit() const {
    const uint64_t others = whole_ != nullptr ? whole_->limit() : UINT64_MAX;
    MutexLock lock(mutex_);
    return std::min(limit_, others);
  }
  // Of all pools at the place.
  uint64_t taken() const {
    MutexLock lock(mutex_);
    return taken_;
  }
  // The most that was ever taken when some of it was made.
  uint64_t peak() const {
    MutexLock lock(mutex_);
    return peak_;
  }
  // " would exceed the limit of budget kv of device 1, 8 GiB", for a message; the whole's where the part has room.
  std::string WouldExceed(uint64_t bytes) const {
    if (whole_ != nullptr && bytes <= OwnRoom()) return whole_->WouldExceed(bytes);
    MutexLock lock(mutex_);
    return " would exceed the limit of " + place_ + ", " + FormatBytes(limit_);
  }

 private:
  uint64_t OwnRoom() const {
    MutexLock lock(mutex_);
    return taken_ > limit_ ? 0 : limit_ - taken_;
  }

  const std::string place_;
  const uint64_t capacity_;
  const std::shared_ptr<MemoryAccount> whole_;
  std::atomic<uint64_t> headroom_{0};
  // Locks of one rank are never held together: a part and its whole take one after the other.
  mutable Mutex mutex_{LockRank::kLeaf};
  uint64_t limit_ COMMPOOL_GUARDED_BY(mutex_);
  uint64_t taken_ COMMPOOL_GUARDED_BY(mutex_) = 0;
  uint64_t peak_ COMMPOOL_GUARDED_BY(mutex_) = 0;
};

// Bytes taken from an account. Kept once the memory exists; the memory's owner then returns them.
using Room = Taken<MemoryAccount, uint64_t, &MemoryAccount::Return, &MemoryAccount::NotePeak>;

}  // namespace commpool::internal
