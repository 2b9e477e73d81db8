#include "src/pool/fixed_pool.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "src/base/bytes.h"

namespace commpool::internal {

namespace {

engine::CachingEngine MakeEngine(const PoolParts& parts) {
  engine::EngineOptions options = parts.engine_options();
  options.choice = engine::Choice::kPartlyUsedFirst;
  // A segment that stands free is one block then, whichever parts of it are known to be idle: what is taken from it,
  // and when it is given back, does not depend on when the pool asked.
  options.merge = engine::MergePolicy::kCompatible;
  return engine::CachingEngine(options);
}

// What a pool may hold beyond the most that was ever asked for at once: over it, segments that stand free go before new
// ones come. Found by replaying traces: less makes a steady program give back and make again.
uint64_t WithSlack(uint64_t bytes) { return bytes + std::max(bytes / 100 * 3, 64 * kMiB); }

}  // namespace

FixedPool::FixedPool(PoolParts parts) : GrowingPool(std::move(parts), MakeEngine(parts), RegistrationKind::kLocal) {}

Status FixedPool::Grow(uint64_t bytes, StreamKey stream, Effort effort) {
  MutexLock growth(growth_);
  engine::Grow grow;
  {
    MutexLock lock(mutex_);
    Result<engine::Grow> needed = engine_.GrowthFor(bytes, stream, engine::Reuse::kSameStream);
    if (!needed.ok()) return Status(needed.status().code(), Title() + ": " + needed.status().message());
    if (needed->bytes == 0) return Status();  // another thread's growth made room
    grow = *needed;
  }
  Status status = effort == Effort::kReserve ? Status() : MakeWay(bytes, grow.bytes);
  if (!status.ok()) return status;
  status = AddSegment(grow);
  if (status.ok() && effort == Effort::kReserve) CountReserved(grow.bytes);
  if (status.code() != StatusCode::kOutOfMemory) return status;
  // Where the usual size does not fit into what is left, the least that holds the request may.
  const std::optional<uint64_t> least = CheckedRoundUp(std::max(bytes, configuration_.segment_bytes), granularity());
  return least && *least < grow.bytes ? AddSegment({*least, grow.space}) : status;
}

void FixedPool::CountReserved(uint64_t bytes) {
  reserved_by_name_ = bytes == 0 ? 0 : reserved_by_name_ + bytes;
  MutexLock lock(mutex_);
  engine_.SetSmallBlocks(reserved_by_name_ == 0 ? engine::CachingEngine::SmallBlocks::kApart
                                                : engine::CachingEngine::SmallBlocks::kWhereTheyFit);
}

Status FixedPool::MakeWay(uint64_t requested, uint64_t segment_bytes) {
  const uint64_t reserved = reserved_by_name_;
  const auto excess = [&, reserved]() -> uint64_t {
    MutexLock lock(mutex_);
    const engine::Counters counters = engine_.counters();
    const uint64_t needed = std::max(counters.requested_bytes.peak, counters.requested_bytes.current + requested);
    const uint64_t after = counters.reserved_bytes.current + segment_bytes;
    return after - std::min(after, WithSlack(needed) + reserved);
  };
  std::vector<engine::SegmentIndex> unused;
  {
    MutexLock lock(mutex_);
    unused = engine_.LongestUnusedSegments();
  }
  std::erase_if(unused, [&](engine::SegmentIndex index) { return registrations_.IsRegistered(index); });
  if (unused.empty() || excess() == 0) return Status();
  Status status = PollFor(segment_bytes);
  if (!status.ok()) return status;
  std::vector<engine::SegmentIndex> chosen;
  uint64_t over = excess();
  for (auto index = unused.begin(); index != unused.end() && over > 0; ++index) {
    MutexLock lock(mutex_);
    if (!engine_.IsIdle(*index)) continue;
    chosen.push_back(*index);
    over -= std::min(over, segments_.At(*index).bytes);
  }
  return Free(chosen).status();
}

Result<uint64_t> FixedPool::Free(const std::vector<engine::SegmentIndex>& chosen) {
  uint64_t released = 0;
  ContextGuard guard(driver_, device_->context());
  for (const engine::SegmentIndex index : chosen) {
    std::unique_ptr<Segment> segment = TakeIfIdle(index);
    if (segment == nullptr) continue;  // another thread was served from it
    released += segment->bytes();
    GiveRoomBack(segment->bytes());
    Status status = segment->Free();
    if (!status.ok()) return status;
  }
  return released;
}

Status FixedPool::AddSegment(const engine::Grow& grow) {
  Status status = TakeRoom(grow.bytes);
  if (!status.ok()) return status;
  ContextGuard guard(driver_, device_->context());
  Result<std::unique_ptr<Segment>> segment = segments_.Make(grow.bytes, peers_);
  if (!segment.ok()) {
    GiveRoomBack(grow.bytes);
    return Status(segment.status().code(), Title() + " cannot grow: " + segment.status().message());
  }
  Adopt(std::move(*segment), grow.space);
  return Status();
}

Result<uint64_t> FixedPool::GiveBack(uint64_t keep_bytes, Wait wait) {
  MutexLock growth(growth_);
  CountReserved(0);
  std::vector<engine::SegmentIndex> chosen;
  {
    MutexLock lock(mutex_);
    uint64_t reserved = engine_.counters().reserved_bytes.current;
    std::vector<engine::SegmentIndex> free = engine_.WhollyFreeSegments();
    while (reserved > keep_bytes && !free.empty()) {
      const engine::SegmentIndex index = free.back();
      free.pop_back();
      if (registrations_.IsRegistered(index)) continue;
      chosen.push_back(index);
      reserved -= segments_.At(index).bytes;
    }
  }
  if (chosen.empty()) return uint64_t{0};

  // Wholly free now need not mean so after the wait, for other threads allocate meanwhile: only what still is goes.
  Status status = wait == Wait::kYes ? WaitForDevice() : PollStreams();
  if (!status.ok()) return status;
  return Free(chosen);
}

Status FixedPool::Close() {
  MutexLock collective(collective_);
  const Status unpinned = CheckUnpinned();
  if (!unpinned.ok()) return unpinned;
  open_ = false;
  if (device_->health().broken()) return device_->health().first_error();
  Status status = WaitForDevice();
  if (!status.ok()) return status;
  status = registrations_.RemoveAll();
  if (!status.ok()) return status;
  TakeBack(shared_.caches->Close(handle(), CacheRegistry::Reopen::kNever));
  CollectGraphs();
  return GiveBack(0, Wait::kYes).status();
}

// A captured collective keeps NCCL's handles of registered memory until its graph is gone.
Status FixedPool::CheckUnpinned() const {
  if (registrations_.empty()) return Status();
  Status status = captures_.CheckNoneLive();
  return status.ok() ? status : Status(status.code(), Title() + ": " + status.message());
}

Status FixedPool::RegisterWith(ncclComm_t handle) {
  MutexLock collective(collective_);
  Status open = CheckOpen();
  if (!open.ok()) return open;
  const Capability capability = segments_.backing().CanRegisterLocal();
  if (!capability.available) return Status(StatusCode::kNotSupported, Title() + ": " + capability.reason);
  Result<Communicator> communicator = DescribeCommunicator(driver_, handle, configuration_.deadline_ms);
  if (!communicator.ok()) return communicator.status();
  if (communicator->device != device()) {
    return Status(StatusCode::kInvalidArgument, Title() + " cannot be registered with a communicator of device " +
                                                    std::to_string(communicator->device));
  }
  MutexLock growth(growth_);
  return registrations_.Add(*communicator, Segments());
}

Result<uint64_t> FixedPool::RegisterPending() {
  MutexLock collective(collective_);
  Status open = CheckOpen();
  if (!open.ok()) return open;
  MutexLock growth(growth_);
  return registrations_.RegisterPending(Segments());
}

Status FixedPool::Deregister(ncclComm_t communicator) {
  MutexLock collective(collective_);
  if (!registrations_.Has(communicator)) return Status();
  const Status unpinned = CheckUnpinned();
  if (!unpinned.ok()) return unpinned;
  Status status = device_->Quiesce(configuration_.deadline_ms);
  if (!status.ok()) return status;
  return registrations_.Remove(communicator);
}

Status FixedPool::AbandonCommunicator(ncclComm_t communicator) {
  registrations_.Abandon(communicator);
  return Status();
}

}  // namespace commpool::internal
