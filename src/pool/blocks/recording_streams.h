// The streams on which calls of a pool are about to record events, outside its lock. A stream is forgotten only after
// they have: afterwards its handle may be gone, or mean another stream.
//
// Any thread. Its own lock guards bookkeeping only.
#ifndef COMMPOOL_SRC_POOL_BLOCKS_RECORDING_STREAMS_H_
#define COMMPOOL_SRC_POOL_BLOCKS_RECORDING_STREAMS_H_

#include <atomic>
#include <cstdint>
#include <set>
#include <vector>

#include "src/base/host_reserve.h"
#include "src/base/mutex.h"
#include "src/stream/stream_key.h"

namespace commpool::internal {

class RecordingStreams {
 public:
  // Some streams, until the end of its life. Begin it under the pool's lock, in the same hold that found the streams:
  // ForgetStream takes that lock too and waits for the end afterwards, so it misses no recording.
  class Scope {
   public:
    Scope(RecordingStreams& owner, ReservedVector<StreamKey> streams);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    RecordingStreams& owner_;
    const ReservedVector<StreamKey> streams_;
  };

  // Waits until nobody is about to record on the stream. REQUIRES: no new scope names it.
  void AwaitEnd(StreamKey stream);

 private:
  Mutex mutex_{LockRank::kLeaf};
  ReservedMultiset<StreamKey> streams_ COMMPOOL_GUARDED_BY(mutex_);
  std::atomic<uint32_t> ended_{0};  // counts the ends, to wait for the next
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_BLOCKS_RECORDING_STREAMS_H_
