// Adds one segment to each of some symmetric pools of a rank. Every rank makes it before any rank calls NCCL, and
// registers it before any rank serves from it. All these pools grow, or none.
#ifndef COMMPOOL_SRC_POOL_SYMMETRIC_SYMMETRIC_GROWTH_H_
#define COMMPOOL_SRC_POOL_SYMMETRIC_SYMMETRIC_GROWTH_H_

#include <cstdint>

#include "src/base/host_reserve.h"
#include "src/pool/segments/segment_store.h"
#include "src/pool/symmetric/collective.h"

namespace commpool::internal {

// One of the pools, and how far it is. The caller fills in the first four members.
struct GrowingPool {
  BlockStore& blocks;
  SegmentStore& segments;
  Collective& collective;
  const uint64_t bytes;
  NewSegments made = {};  // one segment, until it is adopted
  engine::SegmentIndex index = 0;
  Status status = {};                                          // the result of this rank's last step
  SegmentStore::Aside aside = SegmentStore::Aside::kUnpinned;  // how to set it aside, if needed
};

// REQUIRES: the pools' collective locks.
Status GrowTogether(ReservedVector<GrowingPool> pools);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SYMMETRIC_SYMMETRIC_GROWTH_H_
