// BlockStore: what programs and recordings see of a pool's blocks, and its counters.
#include <algorithm>
#include <tuple>
#include <vector>

#include "src/library/base/try.h"
#include "src/library/pool/blocks/block_store.h"

namespace commpool::internal {

// The stream is the engine's key here; Runtime::Shown puts its handle there.
commpool_block BlockStore::Describe(const engine::BlockView& view) const {
  using View = engine::BlockView::State;
  commpool_block block = {};
  block.pointer = reinterpret_cast<void*>(view.address);
  block.bytes = view.bytes;
  block.segment = view.segment;
  block.stream = view.stream;
  block.pool = basis_.handle;
  block.device = basis_.device->device();
  switch (view.state) {
    case View::kLive: {
      // The engine takes a cached block for live; its word knows better.
      const engine::BlockWord word = basis_.runtime.caches.WordOf(view.address);
      block.state = word.state() == engine::BlockWord::State::kCached ? COMMPOOL_BLOCK_CACHED : COMMPOOL_BLOCK_LIVE;
      // A cache may have served the block again for another size than the engine has noted.
      const bool word_says = word.state() == engine::BlockWord::State::kCacheable;
      if (block.state == COMMPOOL_BLOCK_LIVE) {
        block.requested_bytes = word_says ? word.requested() : view.requested_bytes;
      }
      break;
    }
    case View::kFree:
      block.state = COMMPOOL_BLOCK_FREE;
      break;
    case View::kClosed:
      block.state = COMMPOOL_BLOCK_PENDING;
      break;
    case View::kUnmapped:
      block.state = COMMPOOL_BLOCK_UNMAPPED;
      break;
  }
  return block;
}

// The pool's lock keeps the block from being closed; a thread's cache may still take it meanwhile, if the program frees
// it now.
Result<commpool_block> BlockStore::Find(CUdeviceptr address) const {
  MutexLock lock(mutex_);
  const engine::BlockView view = COMMPOOL_TRY(engine_->Find(address));
  const commpool_block block = Describe(view);
  if (block.state == COMMPOOL_BLOCK_LIVE) return block;
  return Status(StatusCode::kNotFound, "the block was freed");
}

std::vector<commpool_block> BlockStore::List() const {
  MutexLock lock(mutex_);
  return Sorted();
}

// RecordPresent joins neighbours, so it needs this order.
std::vector<commpool_block> BlockStore::Sorted() const {
  std::vector<commpool_block> blocks;
  for (const engine::BlockView& view : engine_->Snapshot()) blocks.push_back(Describe(view));
  std::sort(blocks.begin(), blocks.end(), [](const commpool_block& a, const commpool_block& b) {
    return std::tie(a.segment, a.pointer) < std::tie(b.segment, b.pointer);
  });
  return blocks;
}

// Under the lock, so that a block's free is recorded after the block. Neighbours of one segment are one range of
// memory. Called as a recording begins, and when a pool has a new home.
void BlockStore::RecordPresent() const {
  MutexLock lock(mutex_);
  engine::SegmentRange memory;
  uint64_t segment = 0;
  const auto tell_memory = [&] {
    if (memory.bytes > 0) basis_.record.SegmentMade(memory.address, memory.bytes);
  };
  std::vector<commpool_block> blocks = Sorted();
  for (const commpool_block& block : blocks) {
    // Addresses of an expandable pool without a page.
    if (block.state == COMMPOOL_BLOCK_UNMAPPED) continue;
    const auto address = reinterpret_cast<CUdeviceptr>(block.pointer);
    if (block.segment != segment || address != memory.address + memory.bytes) {
      tell_memory();
      memory = {address, 0};
      segment = block.segment;
    }
    memory.bytes += block.bytes;
  }
  tell_memory();
  for (const commpool_block& block : blocks) {
    const auto address = reinterpret_cast<CUdeviceptr>(block.pointer);
    // The recorder knows small blocks by their caches' counts, not one by one.
    const bool cacheable = basis_.runtime.caches.WordOf(address).state() == engine::BlockWord::State::kCacheable;
    if (block.state != COMMPOOL_BLOCK_LIVE || cacheable) continue;
    basis_.record.WasServed(address, block.bytes, block.requested_bytes, WithoutPlace(block.stream));
  }
}

// Under the lock, like all counters: a growth changes several at once.
uint64_t BlockStore::ReservedBytes() const { return counters().reserved_bytes.current; }

engine::Counters BlockStore::counters() const {
  MutexLock lock(mutex_);
  return engine_->counters();
}

// ThreadCaches pauses all caches of the pool meanwhile, and the pool's lock is taken inside of that: so all counters
// are of one moment. For the engine blocks in caches are live; for the program they are free.
engine::Counters BlockStore::Statistics() const {
  engine::Counters counters;
  basis_.runtime.caches.Statistics(basis_.handle, [&](const engine::CacheStatistics& caches) {
    MutexLock lock(mutex_);
    Note(caches.holding);
    counters = engine_->counters();
    engine::Tally cached = caches.holding.now;  // in a cache, or on the way from one to the pool
    cached += caches.left;
    cached -= taken_back_;
    counters.cached_bytes = static_cast<uint64_t>(cached.bytes);
    cached.requested -= requested_correction_;
    counters.requested_bytes.current -= static_cast<uint64_t>(cached.requested);
    counters.allocated_bytes.current -= static_cast<uint64_t>(cached.bytes);
    counters.allocated_blocks.current -= static_cast<uint64_t>(cached.blocks);
    counters.requested_bytes.total += static_cast<uint64_t>(caches.taken.requested);
    counters.allocated_bytes.total += static_cast<uint64_t>(caches.taken.bytes);
    counters.allocated_blocks.total += static_cast<uint64_t>(caches.taken.blocks);
    counters.free_bytes += counters.cached_bytes;
  });
  return counters;
}

// Caches pause as for Statistics, since what they hold is a part of every peak.
void BlockStore::ResetPeaks() {
  basis_.runtime.caches.Statistics(basis_.handle, [&](const engine::CacheStatistics& caches) {
    MutexLock lock(mutex_);
    Note(caches.holding);
    engine_->ResetPeaks();
  });
}

void BlockStore::CheckInvariants() const {
  MutexLock lock(mutex_);
  engine_->CheckInvariants();
}

}  // namespace commpool::internal
