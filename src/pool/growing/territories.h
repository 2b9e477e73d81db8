// The addresses of an expandable pool, and the pages in them.
//
// Under the pool's growth lock; calls the driver.
#ifndef COMMPOOL_SRC_POOL_GROWING_TERRITORIES_H_
#define COMMPOOL_SRC_POOL_GROWING_TERRITORIES_H_

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>

#include "src/backing/territory.h"
#include "src/base/host_reserve.h"
#include "src/engine/expandable_engine.h"
#include "src/pool/segments/segment_store.h"

namespace commpool::internal {

class Territories {
 public:
  Territories(const PoolBasis& basis, BlockStore& blocks, SegmentStore& segments);

  // Reserves addresses for blocks of a space, at least so many, and lets the engine use them.
  Status Add(engine::Space space, uint64_t least_bytes) COMMPOOL_REQUIRES(segments_.growth());
  // The territory that a page lies in.
  Territory& Of(CUdeviceptr address) COMMPOOL_REQUIRES(segments_.growth());
  // Gives addresses without pages back.
  Status ReleaseEmpty() COMMPOOL_REQUIRES(segments_.growth());

 private:
  // Takes an empty one out of the books; null where pages lie in it.
  std::unique_ptr<Segment> TakeIfEmpty(engine::SegmentIndex index);

  const PoolBasis& basis_;
  BlockStore& blocks_;
  SegmentStore& segments_;
  const uint64_t usual_bytes_;
  ReservedMap<CUdeviceptr, engine::SegmentIndex> by_address_ COMMPOOL_GUARDED_BY(segments_.growth());
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_GROWING_TERRITORIES_H_
