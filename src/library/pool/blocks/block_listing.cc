// BlockListing: blocks of the engine, and what caches have done with them since.
#include "src/library/pool/blocks/block_listing.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "src/library/base/try.h"

namespace commpool::internal {

namespace {

// A block as programs see it: one in a cache is not live. Looks at the block's word, which a cache may change
// meanwhile. The stream is the engine's key here; Runtime::Shown puts its handle there.
commpool_block Describe(const PoolBasis& basis, const engine::BlockView& view) {
  using View = engine::BlockView::State;
  commpool_block block = {};
  block.pointer = reinterpret_cast<void*>(view.address);
  block.bytes = view.bytes;
  block.segment = view.segment;
  block.stream = view.stream;
  block.pool = basis.handle;
  block.device = basis.device->device();
  switch (view.state) {
    case View::kLive: {
      // The engine takes a cached block for live; its word knows better.
      const engine::BlockWord word = basis.runtime.caches.WordOf(view.address);
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

// RecordBlocks joins neighbours, so it needs this order.
std::vector<commpool_block> Sorted(const PoolBasis& basis, const engine::Engine& engine) {
  std::vector<commpool_block> blocks;
  for (const engine::BlockView& view : engine.Snapshot()) blocks.push_back(Describe(basis, view));
  std::sort(blocks.begin(), blocks.end(), [](const commpool_block& a, const commpool_block& b) {
    return std::tie(a.segment, a.pointer) < std::tie(b.segment, b.pointer);
  });
  return blocks;
}

}  // namespace

// The pool's lock keeps the block from being closed; a thread's cache may still take it meanwhile, if the program frees
// it now.
Result<commpool_block> FindBlock(const PoolBasis& basis, const BlockStore& blocks, CUdeviceptr address) {
  MutexLock lock(blocks.mutex());
  const engine::BlockView view = COMMPOOL_TRY(blocks.engine().Find(address));
  const commpool_block block = Describe(basis, view);
  if (block.state == COMMPOOL_BLOCK_LIVE) return block;
  return Status(StatusCode::kNotFound, "the block was freed");
}

std::vector<commpool_block> ListBlocks(const PoolBasis& basis, const BlockStore& blocks) {
  MutexLock lock(blocks.mutex());
  return Sorted(basis, blocks.engine());
}

// Under the lock, so that a block's free is recorded after the block. Neighbours of one segment are one range of
// memory. Called as a recording begins, and when a pool has a new home.
void RecordBlocks(const PoolBasis& basis, const BlockStore& store) {
  MutexLock lock(store.mutex());
  engine::SegmentRange memory;
  uint64_t segment = 0;
  const auto tell_memory = [&] {
    if (memory.bytes > 0) basis.record.SegmentMade(memory.address, memory.bytes);
  };
  const std::vector<commpool_block> blocks = Sorted(basis, store.engine());
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
    const bool cacheable = basis.runtime.caches.WordOf(address).state() == engine::BlockWord::State::kCacheable;
    if (block.state != COMMPOOL_BLOCK_LIVE || cacheable) continue;
    basis.record.WasServed(address, block.bytes, block.requested_bytes, WithoutPlace(block.stream));
  }
}

}  // namespace commpool::internal
