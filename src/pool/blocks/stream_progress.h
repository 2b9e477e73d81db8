// Learns which streams are done with the free memory of a growing pool, so that it can be merged, moved or given back.
//
// A stream that stands still says so at once; behind one that goes on an event is recorded and asked about later. Never
// waits, except in Await. One thread at a time, under the pool's growth lock or where nobody grows.
#ifndef COMMPOOL_SRC_POOL_BLOCKS_STREAM_PROGRESS_H_
#define COMMPOOL_SRC_POOL_BLOCKS_STREAM_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <vector>

#include "commpool/status.h"
#include "src/base/host_reserve.h"
#include "src/engine/caching_engine.h"
#include "src/pool/blocks/block_store.h"

namespace commpool::internal {

class StreamProgress {
 public:
  StreamProgress(PoolBasis& basis, BlockStore& blocks) : basis_(basis), blocks_(blocks) {}

  // Asks about every stream that may still use free memory.
  Status Poll();
  // Asks until no stream uses free memory any more, or so long.
  Status Await(std::chrono::microseconds limit);
  // The stream's handle will be recycled.
  void ForgetStream(StreamKey stream);

 private:
  using Clock = std::chrono::steady_clock;
  // An event behind a stream's work, to learn whether the blocks freed before `moment` are idle.
  struct Checkpoint {
    StreamKey stream = 0;
    engine::Moment moment = 0;
    FenceId fence = 0;
  };

  // Asks the stream; where it goes on, adds a checkpoint unless one of this moment is there.
  Status PollStream(StreamKey stream, engine::Moment now, ReservedVector<Checkpoint>* checkpoints);
  // Those that have passed are the engine's to know; the others are kept.
  void PollCheckpoints(const ReservedVector<Checkpoint>& checkpoints);

  engine::CachingEngine& engine() COMMPOOL_REQUIRES(blocks_.mutex()) { return blocks_.engine<engine::CachingEngine>(); }

  PoolBasis& basis_;
  BlockStore& blocks_;
  ReservedVector<Checkpoint> checkpoints_ COMMPOOL_GUARDED_BY(blocks_.mutex());
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_BLOCKS_STREAM_PROGRESS_H_
