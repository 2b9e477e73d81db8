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
#include "src/pool/pool_parts.h"

namespace commpool::internal {

class Territories {
 public:
  Territories(PoolParts& parts, engine::ExpandableEngine& engine);

  // Reserves addresses for blocks of a space, at least so many, and lets the engine use them.
  Status Add(engine::Space space, uint64_t least_bytes) COMMPOOL_REQUIRES(parts_.segments.growth());
  // The territory that a page lies in.
  Territory& Of(CUdeviceptr address) COMMPOOL_REQUIRES(parts_.segments.growth());
  // Gives addresses without pages back.
  Status ReleaseEmpty() COMMPOOL_REQUIRES(parts_.segments.growth());

 private:
  // Takes an empty one out of the books; null where pages lie in it.
  std::unique_ptr<Segment> TakeIfEmpty(engine::SegmentIndex index);

  PoolParts& parts_;
  engine::ExpandableEngine* const engine_ COMMPOOL_PT_GUARDED_BY(parts_.blocks.mutex());
  const uint64_t usual_bytes_;
  ReservedMap<CUdeviceptr, engine::SegmentIndex> by_address_ COMMPOOL_GUARDED_BY(parts_.segments.growth());
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_GROWING_TERRITORIES_H_
