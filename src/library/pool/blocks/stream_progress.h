// StreamProgress: learns which streams are done with the free memory of a growing pool, so that the memory can be
// merged, moved or given back.
//
// It asks each stream. If the stream has not finished, it records an event behind its work, and asks the event later.
// Only Await waits. One thread at a time uses it: under the pool's growth lock, or in a call beside which nobody grows.
#ifndef COMMPOOL_SRC_LIBRARY_POOL_BLOCKS_STREAM_PROGRESS_H_
#define COMMPOOL_SRC_LIBRARY_POOL_BLOCKS_STREAM_PROGRESS_H_

#include <chrono>
#include <vector>

#include "commpool/status.h"
#include "src/library/engine/caching_engine.h"
#include "src/library/pool/blocks/block_store.h"

namespace commpool::internal {

// GrowingMode owns one. The growers call it before they plan with free memory, and before they release it. It owns the
// fences of its checkpoints, and retires each once it has passed.
class StreamProgress {
 public:
  StreamProgress(PoolBasis& basis, BlockStore& blocks) : basis_(basis), blocks_(blocks) {}

  // Asks about every stream that may still use free memory. Never waits. Call it without the pool's lock; it calls the
  // driver.
  Status Poll();
  // Asks until no stream uses free memory any more, or `limit` has passed.
  Status Await(std::chrono::microseconds limit);
  // Call it before the stream's handle is recycled.
  void ForgetStream(StreamKey stream);

 private:
  using Clock = std::chrono::steady_clock;
  // An event behind a stream's work: tells whether the blocks that were freed before `moment` are idle. It owns the
  // fence.
  struct Checkpoint {
    StreamKey stream = 0;
    engine::Moment moment = 0;
    FenceId fence = 0;
  };

  // Asks the stream. Where it still works, adds a checkpoint, unless there is one of this moment. Does nothing for
  // streams that nobody may ask.
  Status PollStream(StreamKey stream, engine::Moment now, std::vector<Checkpoint>* checkpoints);
  // Reports the passed checkpoints to the engine and keeps the others.
  void PollCheckpoints(const std::vector<Checkpoint>& checkpoints);

  engine::CachingEngine& engine() COMMPOOL_REQUIRES(blocks_.mutex()) { return blocks_.engine<engine::CachingEngine>(); }

  PoolBasis& basis_;
  BlockStore& blocks_;
  // Those that have not passed. Poll takes them out while it asks.
  std::vector<Checkpoint> checkpoints_ COMMPOOL_GUARDED_BY(blocks_.mutex());
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_POOL_BLOCKS_STREAM_PROGRESS_H_
