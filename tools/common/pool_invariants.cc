#include "tools/common/pool_invariants.h"

#include "src/library/base/check.h"
#include "src/library/pool/blocks/block_store.h"
#include "tools/common/engine_invariants.h"

namespace commpool::internal {
namespace {

// Whether its own stream alone uses the live block, and nobody has noted anything of it.
bool IsPlain(const engine::Block& block) {
  return block.state == engine::BlockState::kLive && block.part == engine::kCommonPart && block.uses.empty() &&
         block.marks == 0;
}

// Each block that importers keep is live and has a ticket, or is closed by them. The other way round holds but for a
// moment: the server's thread notes first that nobody holds a block, and then ends the reason.
void CheckShared(const std::vector<SharedBlock>& kept, const engine::Engine& engine) {
  for (const SharedBlock& block : kept) {
    COMMPOOL_CHECK(block.freed ? engine.IsClosedBy(block.address, engine::Reason::kImporters)
                               : engine.HasMark(block.address, engine::Mark::kTicket),
                   "the share server keeps a block that its pool does not");
  }
}

}  // namespace

void CheckInvariants(Pool& pool) {
  const std::vector<commpool_block> listed = ListBlocks(pool.basis(), pool.blocks());
  std::vector<engine::SegmentRange> copied;
  {
    MutexLock lock(pool.blocks().mutex());
    const engine::Engine& engine = pool.blocks().engine();
    CheckInvariants(engine);
    CheckShared(pool.basis().runtime.shares.Kept(pool.handle()), engine);
    for (const commpool_block& block : listed) {
      if (block.state != COMMPOOL_BLOCK_CACHED) continue;
      COMMPOOL_CHECK(!pool.basis().life.asleep(), "a cache serves from a pool that sleeps");
      COMMPOOL_CHECK(IsPlain(*engine.heap().FindStart(reinterpret_cast<CUdeviceptr>(block.pointer))),
                     "a cache holds a block that others may use");
    }
    engine.heap().ForEach([&](const engine::Block& block) {
      COMMPOOL_CHECK(block.part == engine::kCommonPart || pool.captures().Knows(block.part),
                     "memory belongs to a graph that nobody knows");
      const bool is_copied = (block.marks & static_cast<engine::Marks>(engine::Mark::kCopied)) != 0;
      if (is_copied) copied.push_back({AddressOf(block), block.bytes});
    });
  }
  for (const engine::SegmentRange& block : copied) {
    COMMPOOL_CHECK(pool.segments().kept.Find(block.address, block.bytes).ok(),
                   "a block counts as copied, and no sleep has its copy");
  }
}

}  // namespace commpool::internal
