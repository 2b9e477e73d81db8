// GraphBlocks: the blocks of a symmetric pool that captures got. A graph owns such a block until the graph is gone.
// Even if the program frees the block before, this rank does not offer it to the other ranks, so that no rank reuses it
// while the graph can be replayed. Only the sequence of calls decides where such a block lies, as always.
//
// Any thread. Methods with an annotation need the pool's lock; the others call the driver, so never call them under a
// lock.
#ifndef COMMPOOL_SRC_POOL_SYMMETRIC_GRAPH_BLOCKS_H_
#define COMMPOOL_SRC_POOL_SYMMETRIC_GRAPH_BLOCKS_H_

#include <cuda.h>

#include <map>
#include <utility>
#include <vector>

#include "commpool/status.h"
#include "src/engine/symmetric_engine.h"
#include "src/pool/blocks/block_store.h"
#include "src/pool/blocks/graph_captures.h"

namespace commpool::internal {

// SymmetricMode owns one; its allocations and frees fill it, and Collective collects what graphs have left. Lock: the
// pool's.
class GraphBlocks {
 public:
  GraphBlocks(PoolBasis& basis, GraphCaptures& captures, BlockStore& blocks)
      : basis_(basis), captures_(captures), blocks_(blocks) {}

  // Waits on the host for the uses of a block outside of the capture of `part`, because they must not become part of
  // the graph. `waits` keeps the uses inside the capture: for them a wait on the device becomes an edge of the graph.
  // kFailedPrecondition for a use in another capture. Called for a served block before the program gets it.
  Status AwaitOutside(engine::Part part, std::vector<engine::StreamUse>* waits) const;

  // Call it when a capture of `part` got the block, by the call number `sequence`.
  void Add(CUdeviceptr address, engine::Sequence sequence, engine::Part part) COMMPOOL_REQUIRES(blocks_.mutex());
  // Call it when a block was freed. While its graph lives no fence may be recorded, so it moves the streams of `freed`
  // here: they get their fences once the graph is gone. Does nothing for blocks of no graph.
  void Free(CUdeviceptr address, engine::Freed* freed) COMMPOOL_REQUIRES(blocks_.mutex());
  // Removes blocks of live graphs from what this rank offers as freed. Called for the intent of every collective call.
  void Keep(std::vector<engine::Sequence>* freed) const COMMPOOL_REQUIRES(blocks_.mutex());

  // Whether a graph owns the block, or its fences are still missing. Each free asks it, to tell an observer whether the
  // block's use ends there.
  bool Has(CUdeviceptr address) const;
  // Turns blocks of graphs that are gone into ordinary freed blocks. Every collective call begins with it: a free
  // counts for the other ranks in such a call only.
  void Collect();
  // The stream's work is done, so none of the blocks needs a fence of it any more.
  void ForgetStream(StreamKey stream);

 private:
  // A block that a graph owns, or has owned.
  // A block's entry goes through: in use; freed, its streams noted; its graph gone, fences being recorded; erased.
  struct GraphBlock {
    // Of its allocation. Ranks name blocks by it, because their addresses differ.
    engine::Sequence sequence = 0;
    engine::Part part = engine::kCommonPart;
    bool gone = false;                    // the graph is gone; the entry stays until all fences are recorded
    std::vector<StreamKey> streams = {};  // freed: those that used it and still need a fence
  };

  // Waits on the host for one use. REQUIRES: the device's context is current, and the thread is in relaxed mode.
  Status Await(const engine::StreamUse& use) const;
  // The fences that blocks of gone graphs still need.
  std::vector<std::pair<CUdeviceptr, StreamKey>> TakeMissingFences(const std::vector<engine::Part>& gone);
  // Gives the engine the fence of a stream that used the block; kNoFence where the stream's work is done. Erases the
  // entry with its last fence.
  void GiveFence(CUdeviceptr address, StreamKey stream, FenceId fence);

  // Parts of the pool, which outlive this object.
  PoolBasis& basis_;
  GraphCaptures& captures_;
  BlockStore& blocks_;
  // By address. An entry stays until its graph is gone and its fences are recorded.
  std::map<CUdeviceptr, GraphBlock> graph_blocks_ COMMPOOL_GUARDED_BY(blocks_.mutex());
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SYMMETRIC_GRAPH_BLOCKS_H_
