#include "tools/common/pool_invariants.h"

#include "src/library/base/check.h"
#include "tools/common/engine_invariants.h"

namespace commpool::internal {
namespace {

// Whether its own stream alone uses the live block, and nobody has noted anything of it.
bool IsPlain(const engine::Block& block) {
  return block.state == engine::BlockState::kLive && block.part == engine::kCommonPart && block.uses.empty() &&
         block.marks == 0;
}

}  // namespace

void CheckInvariants(Pool& pool) {
  const std::vector<commpool_block> listed = pool.blocks().List();
  MutexLock lock(pool.blocks().mutex());
  const engine::Engine& engine = pool.blocks().engine();
  CheckInvariants(engine);
  for (const commpool_block& block : listed) {
    if (block.state != COMMPOOL_BLOCK_CACHED) continue;
    COMMPOOL_CHECK(IsPlain(*engine.heap().FindStart(reinterpret_cast<CUdeviceptr>(block.pointer))),
                   "a cache holds a block that others may use");
  }
  engine.heap().ForEach([&](const engine::Block& block) {
    COMMPOOL_CHECK(block.part == engine::kCommonPart || pool.captures().Knows(block.part),
                   "memory belongs to a graph that nobody knows");
  });
}

}  // namespace commpool::internal
