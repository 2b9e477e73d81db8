// PoolRoom: two limits and the headroom.
#include <algorithm>

#include "src/library/base/bytes.h"
#include "src/library/base/failure.h"
#include "src/library/pool/segments/segment_store.h"

namespace commpool::internal {

// Two limits: the pool's own, and the one that all pools of the place share. The own limit is only looked at: one
// thread at a time grows a pool. The shared one is taken, because other pools grow at the same time. Others may take
// the memory between the look at the headroom and the growth: it is no reservation.
Result<Room> PoolRoom::Take(uint64_t bytes) const {
  if (!FitsOwnLimit(bytes)) {
    return OutOfMemory(basis_.title, ": ", FormatBytes(bytes), " more would exceed its limit of ",
                       FormatBytes(basis_.configuration.limit_bytes), " (", FormatBytes(blocks_.reserved_bytes()),
                       " are reserved): free blocks of it, or raise the limit");
  }
  const uint64_t headroom = account_->headroom();
  const uint64_t free = headroom == 0 ? UINT64_MAX : FreeOnDevice();
  const bool unknown = free == UINT64_MAX;
  if (!unknown && (free < headroom || free - headroom < bytes)) {
    return OutOfMemory(basis_.title, ": ", FormatBytes(bytes), " more would not leave the headroom of ",
                       account_->place(), ", ", FormatBytes(headroom), ", to others (", FormatBytes(free),
                       " are free)");
  }
  if (account_->Take(bytes)) return Room(*account_, bytes);
  return OutOfMemory(basis_.title, ": ", FormatBytes(bytes), " more", account_->WouldExceed(bytes));
}

uint64_t PoolRoom::FreeOnDevice() const {
  if (backing_.placement().kind != Placement::Kind::kDevice) return UINT64_MAX;
  size_t free = 0;
  size_t total = 0;
  const ContextGuard current = basis_.MakeCurrent();
  return basis_.driver.cuda.cuMemGetInfo(&free, &total) == CUDA_SUCCESS ? free : UINT64_MAX;
}

uint64_t PoolRoom::LackingHeadroom() const {
  const uint64_t headroom = account_->headroom();
  return headroom == 0 ? 0 : headroom - std::min(headroom, FreeOnDevice());
}

// Asked before others give memory back for a request that can never be served.
Status PoolRoom::CheckPossible(uint64_t bytes) const {
  const std::optional<uint64_t> whole = CheckedRoundUp(bytes, granularity_);
  if (!whole) return Status();  // overflows: the engine reports that
  const uint64_t limit = basis_.configuration.limit_bytes;
  if (*whole > limit) {
    return OutOfMemory("no memory for ", FormatBytes(bytes), " in ", basis_.title, ": ", FormatBytes(*whole),
                       " never fit its limit of ", FormatBytes(limit), ", whatever is freed: raise the limit");
  }
  // What the place has in all, whatever is free of it now.
  if (bytes <= account_->capacity()) return Status();
  // A program's functions may take the memory from elsewhere.
  if (backing_.row().maker == Maker::kProgram) return Status();
  return OutOfMemory("no memory for ", FormatBytes(bytes), " in ", basis_.title, ": ", account_->place(), " has ",
                     FormatBytes(account_->capacity()), " in all, and nothing was given back");
}

// An overflow is no fit.
bool PoolRoom::FitsOwnLimit(uint64_t bytes) const {
  const std::optional<uint64_t> after = CheckedAdd(blocks_.reserved_bytes(), bytes);
  return after && *after <= basis_.configuration.limit_bytes;
}

uint64_t PoolRoom::Left() const {
  const uint64_t limit = basis_.configuration.limit_bytes;
  return std::min(limit - std::min(limit, blocks_.reserved_bytes()), account_->Room());
}

// How many bytes the pools of the place may reserve before unused memory is released. UINT64_MAX: any number.
uint64_t PoolRoom::CollectionBytes() const {
  const double share = basis_.configuration.collection_share;
  const uint64_t limit = std::min(account_->limit(), account_->capacity());
  return share == 1.0 || limit == UINT64_MAX ? UINT64_MAX : static_cast<uint64_t>(share * static_cast<double>(limit));
}

// `asleep_bytes_` changes under the growth lock alone, so no bytes are returned twice.
Room PoolRoom::Of(uint64_t bytes) {
  const uint64_t asleep = std::min(bytes, asleep_bytes());
  asleep_bytes_.fetch_sub(asleep, std::memory_order_relaxed);
  return Room(*account_, bytes - asleep);
}

void PoolRoom::Sleep(uint64_t bytes) {
  asleep_bytes_.store(bytes, std::memory_order_relaxed);
  account_->Return(bytes);
}

Status PoolRoom::TakeToWake() {
  const uint64_t bytes = asleep_bytes();
  if (account_->Take(bytes)) return Status();
  return OutOfMemory("waking ", FormatBytes(bytes), account_->WouldExceed(bytes));
}

}  // namespace commpool::internal
