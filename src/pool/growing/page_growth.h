// One expansion of an expandable pool, as its engine planned and claimed it: makes new pages, moves others, and lets
// the engine serve from both.
#ifndef COMMPOOL_SRC_POOL_GROWING_PAGE_GROWTH_H_
#define COMMPOOL_SRC_POOL_GROWING_PAGE_GROWTH_H_

#include <vector>

#include "src/base/host_reserve.h"
#include "src/engine/expandable_engine.h"
#include "src/pool/growing/territories.h"
#include "src/pool/segments/growth.h"

namespace commpool::internal {

// REQUIRES: the growth lock, as long as it lives.
class PageGrowth final : public Growth {
 public:
  // `room`: for what the plan makes.
  PageGrowth(PoolBasis& basis, BlockStore& blocks, SegmentStore& segments, Territories& territories,
             const engine::Expansion& plan, Room room);

  // Memory first: it is what runs out, and until it is there nothing has changed.
  Status Make() override;
  Status Prepare() override COMMPOOL_REQUIRES(segments_.growth());
  // A driver that cannot map what it has just unmapped is lost or will be: what was touched is not used again.
  void Undo() override COMMPOOL_REQUIRES(segments_.growth());
  void Adopt() override;

 private:
  Status MakePages();
  Status MoveRow() COMMPOOL_REQUIRES(segments_.growth());

  engine::ExpandableEngine& engine() COMMPOOL_REQUIRES(blocks_.mutex()) {
    return blocks_.engine<engine::ExpandableEngine>();
  }

  PoolBasis& basis_;
  BlockStore& blocks_;
  SegmentStore& segments_;
  Territories& territories_;
  const engine::Expansion& plan_;
  Room room_;
  ReservedVector<PhysicalMemory> made_;
  size_t moves_begun_ = 0;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_GROWING_PAGE_GROWTH_H_
