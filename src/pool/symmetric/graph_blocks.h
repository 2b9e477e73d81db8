// The blocks of a symmetric pool that captures got. Such a block is its graph's until the graph is gone: freed, it is
// not offered to the other ranks before, so that no rank reuses it while the graph is replayed. Where it lies depends
// on the sequence of calls alone, as ever.
//
// Any thread; methods that say so need the pool's lock, the others call the driver and are never called under one.
#ifndef COMMPOOL_SRC_POOL_SYMMETRIC_GRAPH_BLOCKS_H_
#define COMMPOOL_SRC_POOL_SYMMETRIC_GRAPH_BLOCKS_H_

#include <cuda.h>

#include <utility>
#include <vector>

#include "commpool/status.h"
#include "src/base/host_reserve.h"
#include "src/engine/symmetric_engine.h"
#include "src/pool/blocks/block_store.h"
#include "src/pool/blocks/graph_captures.h"

namespace commpool::internal {

class GraphBlocks {
 public:
  GraphBlocks(PoolBasis& basis, GraphCaptures& captures, BlockStore& blocks)
      : basis_(basis), captures_(captures), blocks_(blocks) {}

  // Waits on the host for the uses of a block that lie outside of the capture of `part`: they must not become part of
  // the graph. `waits` keeps the uses inside, for which a device-side wait is an edge of the graph. kFailedPrecondition
  // for a use in another capture.
  Status AwaitOutside(engine::Part part, ReservedVector<engine::StreamUse>* waits) const;

  // A capture of `part` got the block, by the call `sequence`.
  void Add(CUdeviceptr address, engine::Sequence sequence, engine::Part part) COMMPOOL_REQUIRES(blocks_.mutex());
  // The block was freed: the streams that owe it fences record them when the graph is gone, for nothing may be recorded
  // for a graph. Takes them out of `freed`. Nothing for blocks of no graph.
  void Free(CUdeviceptr address, engine::Freed* freed) COMMPOOL_REQUIRES(blocks_.mutex());
  // Takes blocks of live graphs out of what this rank offers as freed.
  void Keep(std::vector<engine::Sequence>* freed) const COMMPOOL_REQUIRES(blocks_.mutex());

  bool Has(CUdeviceptr address) const;
  // Blocks of graphs that are gone become like any that was freed.
  void Collect();
  void ForgetStream(StreamKey stream);

 private:
  struct GraphBlock {
    engine::Sequence sequence = 0;
    engine::Part part = engine::kCommonPart;
    bool gone = false;                       // the graph; the block is kept while streams are to fence
    ReservedVector<StreamKey> streams = {};  // that used it and get their fences then
  };

  Status Await(const engine::StreamUse& use) const;
  // The fences that blocks of gone graphs still owe.
  ReservedVector<std::pair<CUdeviceptr, StreamKey>> TakeOwed(const ReservedVector<engine::Part>& gone);
  // With kNoFence where the stream's work is over.
  void Settle(CUdeviceptr address, StreamKey stream, FenceId fence);

  PoolBasis& basis_;
  GraphCaptures& captures_;
  BlockStore& blocks_;
  ReservedMap<CUdeviceptr, GraphBlock> graph_blocks_ COMMPOOL_GUARDED_BY(blocks_.mutex());
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SYMMETRIC_GRAPH_BLOCKS_H_
