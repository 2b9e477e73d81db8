// ThreadCaches: the second step of an allocation and a free, and the words of blocks. lanes.cc has the books of lanes.
#include "src/library/pool/caches/thread_caches.h"

#include "src/library/engine/types.h"

namespace commpool::internal {

namespace {

// A block's word goes these ways: none -> cacheable or live (Publish); cacheable <-> cached (the thread's cache) ->
// none (TakeBack of the owner); cacheable -> live (MakeUncacheable); cacheable or live -> none (Withdraw).
using State = engine::BlockWord::State;

// REQUIRES: the block is small. A block whose size is no class's stays out of caches: a cache knows a block's bytes by
// its class alone.
bool HasClass(uint64_t bytes) { return engine::ClassBytes(engine::ClassOf(bytes)) == bytes; }

}  // namespace

Status ThreadCaches::FreedAlready(CUdeviceptr address) {
  return NotFound("no live block at ", engine::Hexadecimal(address),
                  ": freed already (it is in a thread's cache, or another thread freed it at the same time)");
}

// Overwrites the route that had the place before. The shared pointer keeps this object's address from another runtime.
// The cache and the pool come later: TakeFor and Runtime::FindPool enter them.
Slot* ThreadCaches::Remember(Route route, StreamKey stream, uint64_t least, uint64_t most, PoolHandle server) const {
  OwnCaches* const own = MakeOwnCaches();
  if (own == nullptr) return nullptr;
  route.all = this;
  Slot& slot = own->SlotFor(route);
  slot = {route, least, most - least, nullptr, shared_from_this(), {}, server, stream};
  return &slot;
}

// While an observer watches, the slot gets no cache: so each request comes here, and is told.
CUdeviceptr ThreadCaches::TakeFor(Slot& slot, const std::string& pool_name, uint64_t bytes, StreamKey stream) const {
  if (bytes > engine::kSmallBytes) return 0;
  engine::ThreadCache* const cache = Find(slot.server, stream);
  if (!watched_) slot.cache = cache;
  const CUdeviceptr address = cache == nullptr ? 0 : cache->Take(bytes);
  if (address == 0 || !watched_) return address;
  // The block is this thread's own now, so nobody else changes its word.
  const engine::BlockWord block(blocks_.Find(address)->load(std::memory_order_relaxed));
  observer_.BlockAllocated({address, engine::ClassBytes(block.size_class())}, bytes, stream, pool_name);
  return address;
}

// The second try of a free, where Give has found no cache at once, the cache is full, or an observer watches.
bool ThreadCaches::GiveOrMakeRoom(CUdeviceptr address, BlockOwner& owner) {
  engine::AtomicWord* const word = blocks_.Find(address);
  const engine::BlockWord block(word == nullptr ? 0 : word->load(std::memory_order_acquire));
  if (block.state() != State::kCacheable) return false;
  Open(block.lane());
  engine::ThreadCache* const cache = Find(block.lane());
  if (cache == nullptr) return false;
  const auto give = [&] {
    // Tell the observer before another thread can get the block. Where the cache then refuses the block, the owner's
    // free tells it a second time.
    observer_.BlockFreed(address);
    return cache->Give({address, word}, block);
  };
  if (give()) return true;
  // The cache is full. Half goes back in one hold of the pool's lock, so that the next frees find room.
  engine::ReturnedBlocks half{cache->TakeHalf(), {}};
  for (const engine::CachedBlock& one : half.blocks) {
    half.held += engine::TallyOf(engine::BlockWord(one.word->load(std::memory_order_relaxed)));
  }
  // Without a lock: the owner takes its own.
  owner.TakeBack(half);
  return give();
}

// Called before the program has the block, so nobody else changes its word yet.
void ThreadCaches::Publish(const CachedPool& pool, const engine::SegmentRange& range, uint64_t requested,
                           StreamKey stream, Caching caching) {
  engine::AtomicWord* const word = blocks_.Make(range.address);
  if (word == nullptr) return;
  engine::BlockWord value = engine::BlockWord::Live(pool.handle);
  engine::ReturnedBlocks returned;
  if (caching == Caching::kYes && HasClass(range.bytes)) {
    const engine::ThreadCache* const own = Find(pool.handle, stream);
    const bool open = own != nullptr && !own->closed();
    // A cache that this thread has tells the lane without a lock. LaneOf takes it, and may end an older lane.
    const engine::Lane lane = open ? own->lane() : LaneOf(pool, stream, &returned);
    if (!open) Open(lane);
    value = engine::BlockWord::Cacheable(lane, engine::ClassOf(range.bytes), requested);
  }
  word->store(value.bits(), std::memory_order_release);
  if (returned.blocks.empty() && returned.requested_more == 0) return;
  // Blocks of a lane that LaneOf has ended. The caller of Publish holds no lock.
  if (const std::shared_ptr<BlockOwner> owner = pool.owner.lock()) owner->TakeBack(returned);
}

// A small block's word lies at another place than a large one's.
std::optional<uint64_t> ThreadCaches::WithdrawSmall(CUdeviceptr address) {
  engine::AtomicWord* const word = blocks_.Find(address);
  const engine::BlockWord value(word == nullptr ? 0 : word->load(std::memory_order_acquire));
  if (value.state() == State::kNone) return 0;  // the engine knows whether it is live
  if (!TryChange(*word, value, engine::BlockWord())) return std::nullopt;
  // Only the word of a cacheable block has the size; for others the engine knows it.
  return value.state() == State::kCacheable ? value.requested() : 0;
}

// A large block, and one that is live without a cache, need no change.
Result<uint64_t> ThreadCaches::MakeUncacheable(CUdeviceptr address) {
  engine::AtomicWord* const word = blocks_.Find(address);
  if (word == nullptr) return uint64_t{0};
  const engine::BlockWord value(word->load(std::memory_order_acquire));
  if (value.state() == State::kNone || value.state() == State::kLive) return uint64_t{0};
  if (!TryChange(*word, value, engine::BlockWord::Live())) return FreedAlready(address);
  return value.requested();
}

}  // namespace commpool::internal
