// The streams on which calls of a pool are about to record events, outside its lock. A stream is forgotten only after
// they have: afterwards its handle may be gone, or mean another stream.
//
// Any thread. Its own lock guards bookkeeping only.
#ifndef COMMPOOL_SRC_POOL_BLOCKS_RECORDING_STREAMS_H_
#define COMMPOOL_SRC_POOL_BLOCKS_RECORDING_STREAMS_H_

#include <atomic>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "src/base/host_reserve.h"
#include "src/base/mutex.h"
#include "src/stream/stream_key.h"

namespace commpool::internal {

class RecordingStreams {
 public:
  // Some streams, until the end of its life.
  class Scope {
   public:
    Scope() = default;
    Scope(Scope&& other) noexcept { *this = std::move(other); }
    Scope& operator=(Scope&& other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(streams_, other.streams_);
      return *this;
    }
    ~Scope() { End(); }

    // Early; once.
    void End();

   private:
    friend class RecordingStreams;
    Scope(RecordingStreams* owner, const ReservedVector<StreamKey>& streams) : owner_(owner), streams_(streams) {}

    RecordingStreams* owner_ = nullptr;
    ReservedVector<StreamKey> streams_;
  };

  // Call it under the pool's lock, in the same hold that found the streams. ForgetStream takes that lock too and waits
  // for the end afterwards, so it misses no recording.
  Scope Begin(const ReservedVector<StreamKey>& streams);

  // Waits until nobody is about to record on the stream. REQUIRES: no new scope names it.
  void AwaitEnd(StreamKey stream);

 private:
  Mutex mutex_{LockRank::kLeaf};
  ReservedMultiset<StreamKey> streams_ COMMPOOL_GUARDED_BY(mutex_);
  std::atomic<uint32_t> ended_{0};  // counts the ends, to wait for the next
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_BLOCKS_RECORDING_STREAMS_H_
