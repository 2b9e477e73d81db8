// The memory of fixed and expandable pools that captures got: each graph has a part of its own, which nobody else is
// served from until the graph is gone.
//
// Any thread. Calls the driver without a lock.
#ifndef COMMPOOL_SRC_POOL_GROWING_GRAPH_PARTS_H_
#define COMMPOOL_SRC_POOL_GROWING_GRAPH_PARTS_H_

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "commpool/status.h"
#include "src/engine/caching_engine.h"
#include "src/pool/blocks/block_store.h"
#include "src/pool/blocks/graph_captures.h"

namespace commpool::internal {

class GraphParts {
 public:
  GraphParts(const PoolBasis& basis, BlockStore& blocks, GraphCaptures& captures)
      : basis_(basis), blocks_(blocks), captures_(captures) {}

  // A request for that part: from its free memory or idle memory of the pool. Nothing where neither has room.
  Result<std::optional<CUdeviceptr>> Serve(uint64_t bytes, StreamKey stream, engine::Part part);

  // Closes a live block, a graph's or the pool's own. A graph's stays in its part and owes no fences: nothing may be
  // recorded for a graph.
  Result<engine::Freed> Free(CUdeviceptr address) COMMPOOL_REQUIRES(blocks_.mutex());
  // Whether the live block is a graph's.
  bool Has(CUdeviceptr address) const;

  // What graphs that are gone had returns to the pool.
  void Collect();

 private:
  engine::CachingEngine& engine() const COMMPOOL_REQUIRES(blocks_.mutex()) {
    return blocks_.engine<engine::CachingEngine>();
  }

  const PoolBasis& basis_;
  BlockStore& blocks_;
  GraphCaptures& captures_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_GROWING_GRAPH_PARTS_H_
