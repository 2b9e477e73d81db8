// What programs and recordings see of the blocks, and what caches have done with them since.
#include "src/library/pool/blocks/block_listing.h"

#include "src/library/base/try.h"

namespace commpool::internal {

namespace {

// A block as programs see it: one in a cache is not live. Looks at the block's word, which a cache may change
// meanwhile. The stream is the engine's key here; Runtime::Shown puts its handle there.
void Describe(const PoolBasis& basis, commpool_block& block) {
  block.pool = basis.handle;
  block.device = basis.device->device();
  if (block.state != COMMPOOL_BLOCK_LIVE) return;
  // The engine takes a cached block for live; its word knows better. A cache may also have served the block again for
  // another size than the engine has noted.
  const engine::BlockWord word = basis.runtime.caches.WordOf(reinterpret_cast<CUdeviceptr>(block.pointer));
  if (word.state() == engine::BlockWord::State::kCacheable) block.requested_bytes = word.requested();
  if (word.state() != engine::BlockWord::State::kCached) return;
  block.state = COMMPOOL_BLOCK_CACHED;
  block.requested_bytes = 0;
}

std::vector<commpool_block> Listed(const PoolBasis& basis, const BlockStore& blocks) COMMPOOL_REQUIRES(blocks.mutex()) {
  std::vector<commpool_block> listed = blocks.engine().Snapshot();
  for (commpool_block& block : listed) Describe(basis, block);
  return listed;
}

}  // namespace

// The pool's lock keeps the block from being closed; a thread's cache may still take it meanwhile, if the program frees
// it now.
Result<commpool_block> FindBlock(const PoolBasis& basis, const BlockStore& blocks, CUdeviceptr address) {
  MutexLock lock(blocks.mutex());
  commpool_block block = COMMPOOL_TRY(blocks.engine().Find(address));
  Describe(basis, block);
  if (block.state == COMMPOOL_BLOCK_LIVE) return block;
  return NotFound("the block was freed");
}

std::vector<commpool_block> ListBlocks(const PoolBasis& basis, const BlockStore& blocks) {
  MutexLock lock(blocks.mutex());
  return Listed(basis, blocks);
}

// Under the lock, so that a block's free is recorded after the block. Neighbours of one segment are one range of
// memory.
void RecordBlocks(const PoolBasis& basis, const BlockStore& blocks) {
  MutexLock lock(blocks.mutex());
  engine::SegmentRange memory;
  uint64_t segment = 0;
  const auto tell_memory = [&] {
    if (memory.bytes > 0) basis.record.Tell(recording::SegmentMade{.address = memory.address, .bytes = memory.bytes});
  };
  const std::vector<commpool_block> listed = Listed(basis, blocks);
  for (const commpool_block& block : listed) {
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
  for (const commpool_block& block : listed) {
    const auto address = reinterpret_cast<CUdeviceptr>(block.pointer);
    // The recorder knows small blocks by their caches' counts, not one by one.
    const bool cacheable = basis.runtime.caches.WordOf(address).state() == engine::BlockWord::State::kCacheable;
    if (block.state != COMMPOOL_BLOCK_LIVE || cacheable) continue;
    basis.record.Tell(recording::BlockServed{.address = address,
                                             .bytes = block.bytes,
                                             .requested = block.requested_bytes,
                                             .stream = WithoutPlace(block.stream)});
  }
}

}  // namespace commpool::internal
