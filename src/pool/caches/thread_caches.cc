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

void ThreadCaches::Remember(RouteKey key, uint64_t least, uint64_t most, PoolHandle pool, StreamKey stream) const {
  if (own_state.caches == nullptr) return;
  key.registry = registry_.get();
  own_state.caches->Remember({key, least, most - least, registry_->Find(pool, stream)});
}

bool ThreadCaches::Give(CUdeviceptr address, BlockOwner& owner) const {
  const engine::AtomicWord* const word = registry_->blocks().Find(address);
  if (word == nullptr) return false;
  const engine::BlockWord block(word->load(std::memory_order_acquire));
  if (block.state() != State::kCacheable) return false;
  BestEffort([&] { registry_->Open(block.lane()); });  // without a cache the pool frees the block
  // Where the cache refuses, the owner's own free tells observers again.
  const auto tell = [&] { observers_.Tell(&MemoryObserver::BlockFreed, address); };
  if (Push(address, tell)) return true;
  if (engine::ThreadCache* const cache = registry_->Find(block.lane())) owner.TakeBack(cache->TakeHalf());
  return Push(address, tell);
}

void ThreadCaches::Publish(const CachedPool& pool, const engine::SegmentRange& range, uint64_t requested,
                           StreamKey stream, Caching caching) {
  if (range.bytes > engine::kSmallBytes) return PublishLarge(range.address, pool.handle);
  engine::AtomicWord* const word = registry_->blocks().Make(range.address);
  if (word == nullptr) return;
  engine::BlockWord value = engine::BlockWord::Live(pool.handle);
  if (caching == Caching::kYes && HasClass(range.bytes)) {
    BestEffort([&] {
      const engine::ThreadCache* const own = registry_->Find(pool.handle, stream);
      const bool open = own != nullptr && !own->closed();
      const engine::Lane lane = open ? own->lane() : registry_->LaneOf(pool, stream);
      if (!open) registry_->Open(lane);
      value = engine::BlockWord::Cacheable(lane, engine::ClassOf(range.bytes), requested);
    });
  }
  word->store(value.bits(), std::memory_order_release);
}

void ThreadCaches::Forget(CUdeviceptr address) {
  engine::AtomicWord* const large = registry_->blocks().FindLarge(address);
  if (large != nullptr && engine::LargeWord(large->load(std::memory_order_relaxed)).IsOf(address)) {
    large->store(0, std::memory_order_release);
  } else if (engine::AtomicWord* const small = registry_->blocks().Find(address)) {
    small->store(0, std::memory_order_release);
  }
}

bool ThreadCaches::Replace(engine::AtomicWord& word, engine::BlockWord from, engine::BlockWord to) {
  if (from.state() == State::kCacheable) return registry_->Claim(word, from, to);
  uint64_t bits = from.bits();
  return from.state() == State::kLive && word.compare_exchange_strong(bits, to.bits(), std::memory_order_acq_rel);
}

Result<uint64_t> ThreadCaches::Withdraw(CUdeviceptr address) {
  engine::AtomicWord* const word = registry_->blocks().Find(address);
  const engine::BlockWord value(word == nullptr ? 0 : word->load(std::memory_order_acquire));
  if (value.state() == State::kNone) return WithdrawLarge(address);
  if (!Replace(*word, value, engine::BlockWord())) return FreedAlready(address);
  return value.state() == State::kCacheable ? value.requested() : 0;
}

Result<uint64_t> ThreadCaches::WithdrawLarge(CUdeviceptr address) {
  engine::AtomicWord* const word = registry_->blocks().FindLarge(address);
  uint64_t bits = word == nullptr ? 0 : word->load(std::memory_order_acquire);
  if (!engine::LargeWord(bits).IsOf(address)) return uint64_t{0};  // the engine says whether it is live
  if (word->compare_exchange_strong(bits, 0, std::memory_order_acq_rel)) return uint64_t{0};
  return Status(StatusCode::kNotFound,
                "no live block at " + engine::Hexadecimal(address) + ": another thread freed it at the same time");
}

Result<uint64_t> ThreadCaches::MakeUncacheable(CUdeviceptr address) {
  engine::AtomicWord* const word = registry_->blocks().Find(address);
  if (word == nullptr) return uint64_t{0};
  const engine::BlockWord value(word->load(std::memory_order_acquire));
  if (value.state() == State::kNone || value.state() == State::kLive) return uint64_t{0};
  if (!Replace(*word, value, engine::BlockWord::Live())) return FreedAlready(address);
  return value.requested();
}

}  // namespace commpool::internal
