// One more segment of each of some symmetric pools of a rank: made on every rank before any rank calls NCCL, registered
// on every rank before any rank serves from it. All of them grow, or none.
#ifndef COMMPOOL_SRC_POOL_SYMMETRIC_SYMMETRIC_GROWTH_H_
#define COMMPOOL_SRC_POOL_SYMMETRIC_SYMMETRIC_GROWTH_H_

#include <cstdint>
#include <string>
#include <utility>

#include "src/base/function_ref.h"
#include "src/base/host_reserve.h"
#include "src/engine/symmetric_engine.h"
#include "src/pool/segments/segment_store.h"
#include "src/pool/symmetric/collective.h"

namespace commpool::internal {

// REQUIRES: the pools' collective locks, as long as it lives.
class SymmetricGrowth {
 public:
  struct OfPool {
    BlockStore& blocks;
    SegmentStore& segments;
    Collective& collective;
    const uint64_t bytes;
    NewSegments made = {};  // one, until it is adopted
    engine::SegmentIndex index = 0;
    Status status = {};  // of this rank's last step
  };

  explicit SymmetricGrowth(ReservedVector<OfPool> pools) : pools_(std::move(pools)) {}

  Status Run();

 private:
  // One pool after the other. Those behind one that fails are left out: they would call NCCL at a place where the other
  // ranks call it for that one.
  void OneByOne(Status (*act)(OfPool& pool));
  void Make();
  // Windows with every communicator.
  void Register();
  // This rank's windows go again, and all ranks' have before any unmaps. Each pool by itself: whether the undoing of
  // one works is nothing to the others.
  void Undo();
  // The outcomes of all ranks.
  Status AgreeOn(FunctionRef<std::string(const OfPool& pool)> step);

  ReservedVector<OfPool> pools_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SYMMETRIC_SYMMETRIC_GROWTH_H_
