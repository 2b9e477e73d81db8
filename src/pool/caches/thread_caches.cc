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

// REQUIRES: the block is small.
bool HasClass(uint64_t bytes) { return engine::ClassBytes(engine::ClassOf(bytes)) == bytes; }

}  // namespace

Slot* ThreadCaches::Remember(Route route, StreamKey stream, uint64_t least, uint64_t most, PoolHandle server) const {
  OwnCaches* const own = MakeOwnCaches();
  if (own == nullptr) return nullptr;
  route.all = this;
  Slot& slot = own->SlotFor(route);
  slot = {route, least, most - least, nullptr, shared_from_this(), {}, server, stream};
  return &slot;
}

CUdeviceptr ThreadCaches::TakeFor(Slot& slot, const std::string& pool_name, uint64_t bytes, StreamKey stream) const {
  if (bytes > engine::kSmallBytes) return 0;
  engine::ThreadCache* const cache = Find(slot.server, stream);
  if (!watched_) slot.cache = cache;
  const CUdeviceptr address = cache == nullptr ? 0 : cache->Take(bytes);
  if (address == 0 || !watched_) return address;
  const engine::BlockWord block(blocks_.Find(address)->load(std::memory_order_relaxed));
  observer_.BlockAllocated({address, engine::ClassBytes(block.size_class())}, stream, pool_name);
  return address;
}

bool ThreadCaches::GiveOrMakeRoom(CUdeviceptr address, BlockOwner& owner) {
  engine::AtomicWord* const word = blocks_.Find(address);
  const engine::BlockWord block(word == nullptr ? 0 : word->load(std::memory_order_acquire));
  if (block.state() != State::kCacheable) return false;
  BestEffort([&] { Open(block.lane()); });  // without a cache the block is freed to the pool
  engine::ThreadCache* const cache = Find(block.lane());
  if (cache == nullptr) return false;
  const auto give = [&] {
    // Tell the observer before another thread can get the block. Where the cache then refuses the block, the owner's
    // free tells it a second time.
    observer_.BlockFreed(address);
    return cache->Give({address, word}, block);
  };
  if (give()) return true;
  engine::ReturnedBlocks half{cache->TakeHalf(), {}};
  for (const engine::CachedBlock& one : half.blocks) {
    half.held += engine::TallyOf(engine::BlockWord(one.word->load(std::memory_order_relaxed)));
  }
  owner.TakeBack(half);
  return give();
}

void ThreadCaches::Publish(const CachedPool& pool, const engine::SegmentRange& range, uint64_t requested,
                           StreamKey stream, Caching caching) {
  engine::AtomicWord* const word = blocks_.Make(range.address);
  if (word == nullptr) return;
  engine::BlockWord value = engine::BlockWord::Live(pool.handle);
  engine::ReturnedBlocks returned;
  if (caching == Caching::kYes && HasClass(range.bytes)) {
    BestEffort([&] {
      const engine::ThreadCache* const own = Find(pool.handle, stream);
      const bool open = own != nullptr && !own->closed();
      const engine::Lane lane = open ? own->lane() : LaneOf(pool, stream, &returned);
      if (!open) Open(lane);
      value = engine::BlockWord::Cacheable(lane, engine::ClassOf(range.bytes), requested);
    });
  }
  word->store(value.bits(), std::memory_order_release);
  if (returned.blocks.empty() && returned.requested_more == 0) return;
  if (const std::shared_ptr<BlockOwner> owner = pool.owner.lock()) owner->TakeBack(returned);
}

bool ThreadCaches::Replace(engine::AtomicWord& word, engine::BlockWord from, engine::BlockWord to) {
  if (from.state() == State::kCacheable) return TryChange(word, from, to);
  uint64_t bits = from.bits();
  return from.state() == State::kLive && word.compare_exchange_strong(bits, to.bits(), std::memory_order_acq_rel);
}

Result<uint64_t> ThreadCaches::Withdraw(CUdeviceptr address) {
  engine::AtomicWord* const word = blocks_.Find(address);
  const engine::BlockWord value(word == nullptr ? 0 : word->load(std::memory_order_acquire));
  if (value.state() == State::kNone) return WithdrawLarge(address);
  if (!Replace(*word, value, engine::BlockWord())) return FreedAlready(address);
  return value.state() == State::kCacheable ? value.requested() : 0;
}

Result<uint64_t> ThreadCaches::WithdrawLarge(CUdeviceptr address) {
  engine::AtomicWord* const word = blocks_.FindLarge(address);
  uint64_t bits = word == nullptr ? 0 : word->load(std::memory_order_acquire);
  if (!engine::LargeWord(bits).IsOf(address)) return uint64_t{0};  // the engine knows whether it is live
  if (word->compare_exchange_strong(bits, 0, std::memory_order_acq_rel)) return uint64_t{0};
  return Status(StatusCode::kNotFound,
                "no live block at " + engine::Hexadecimal(address) + ": another thread freed it at the same time");
}

Result<uint64_t> ThreadCaches::MakeUncacheable(CUdeviceptr address) {
  engine::AtomicWord* const word = blocks_.Find(address);
  if (word == nullptr) return uint64_t{0};
  const engine::BlockWord value(word->load(std::memory_order_acquire));
  if (value.state() == State::kNone || value.state() == State::kLive) return uint64_t{0};
  if (!Replace(*word, value, engine::BlockWord::Live())) return FreedAlready(address);
  return value.requested();
}

}  // namespace commpool::internal
