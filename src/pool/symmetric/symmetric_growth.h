// One more segment of each of some symmetric pools of a rank: made on every rank before any rank calls NCCL, registered
// on every rank before any rank serves from it. All of them grow, or none.
#ifndef COMMPOOL_SRC_POOL_SYMMETRIC_SYMMETRIC_GROWTH_H_
#define COMMPOOL_SRC_POOL_SYMMETRIC_SYMMETRIC_GROWTH_H_

#include <cstdint>

#include "src/base/host_reserve.h"
#include "src/pool/segments/segment_store.h"
#include "src/pool/symmetric/collective.h"

namespace commpool::internal {

struct GrowingPool {
  BlockStore& blocks;
  SegmentStore& segments;
  Collective& collective;
  const uint64_t bytes;
  NewSegments made = {};  // one, until it is adopted
  engine::SegmentIndex index = 0;
  Status status = {};                                          // of this rank's last step
  SegmentStore::Aside aside = SegmentStore::Aside::kUnpinned;  // how it would be set aside
};

// REQUIRES: the pools' collective locks.
Status GrowTogether(ReservedVector<GrowingPool> pools);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SYMMETRIC_SYMMETRIC_GROWTH_H_
