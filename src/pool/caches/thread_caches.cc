#include "src/pool/caches/thread_caches.h"

#include "src/base/host_failure.h"
#include "src/engine/messages.h"

namespace commpool::internal {

namespace {

using State = engine::BlockWord::State;

Status FreedAlready(CUdeviceptr address) {
  return Status(StatusCode::kNotFound,
                "no live block at " + engine::Hexadecimal(address) + ": freed already (it is in a thread's cache)");
}

bool HasClass(uint64_t bytes) {
  return bytes <= engine::kSmallBytes && engine::ClassBytes(engine::ClassOf(bytes)) == bytes;
}

}  // namespace

CUdeviceptr ThreadCaches::Take(PoolHandle pool, const std::string& name, uint64_t bytes, StreamKey stream) const {
  const CUdeviceptr address = Pop(pool, bytes, stream);
  if (address == 0 || !observers_.watching_blocks()) return address;
  const engine::AtomicWord* const word = registry_->blocks().Find(address);
  const engine::BlockWord block(word->load(std::memory_order_relaxed));
  observers_.Tell(&MemoryObserver::BlockAllocated,
                  engine::SegmentRange{address, engine::ClassBytes(block.size_class())}, stream, name);
  return address;
}

bool ThreadCaches::Give(CUdeviceptr address, BlockOwner& owner) const {
  const engine::AtomicWord* const word = registry_->blocks().Find(address);
  if (word == nullptr) return false;
  const engine::BlockWord block(word->load(std::memory_order_acquire));
  if (block.state() != State::kCacheable) return false;
  AttemptInVain([&] { registry_->Open(block.lane()); });  // without a cache the pool frees the block
  // Where the cache refuses, the owner's own free tells observers again.
  const auto tell = [&] { observers_.Tell(&MemoryObserver::BlockFreed, address); };
  if (Push(address, tell)) return true;
  if (engine::ThreadCache* const cache = registry_->Find(block.lane())) owner.TakeBack(cache->TakeHalf());
  return Push(address, tell);
}

void ThreadCaches::Publish(const CachedPool& pool, const engine::SegmentRange& range, uint64_t requested,
                           StreamKey stream, Caching caching) {
  engine::AtomicWord* const word = registry_->blocks().Find(range.address);
  if (word == nullptr) return;
  engine::BlockWord value = engine::BlockWord::Live(pool.handle);
  if (caching == Caching::kYes && HasClass(range.bytes)) {
    AttemptInVain([&] {
      const engine::Lane lane = registry_->LaneOf(pool, stream);
      registry_->Open(lane);
      value = engine::BlockWord::Cacheable(lane, engine::ClassOf(range.bytes), requested);
    });
  }
  word->store(value.bits(), std::memory_order_release);
}

Result<uint64_t> ThreadCaches::Withdraw(CUdeviceptr address) {
  engine::AtomicWord* const word = registry_->blocks().Find(address);
  if (word == nullptr) return uint64_t{0};
  uint64_t bits = word->load(std::memory_order_acquire);
  const engine::BlockWord value(bits);
  if (value.state() == State::kNone) return uint64_t{0};
  if (value.state() == State::kCached || !word->compare_exchange_strong(bits, 0, std::memory_order_acq_rel)) {
    return FreedAlready(address);
  }
  return value.state() == State::kCacheable ? value.requested() : 0;
}

Result<uint64_t> ThreadCaches::MakeUncacheable(CUdeviceptr address) {
  engine::AtomicWord* const word = registry_->blocks().Find(address);
  if (word == nullptr) return uint64_t{0};
  uint64_t bits = word->load(std::memory_order_acquire);
  const engine::BlockWord value(bits);
  if (value.state() == State::kNone || value.state() == State::kLive) return uint64_t{0};
  const uint64_t live = engine::BlockWord::Live().bits();
  if (value.state() == State::kCached || !word->compare_exchange_strong(bits, live, std::memory_order_acq_rel)) {
    return FreedAlready(address);
  }
  return value.requested();
}

}  // namespace commpool::internal
