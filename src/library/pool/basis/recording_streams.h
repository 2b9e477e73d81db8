// RecordingStreams: the streams on which calls of a pool are about to record events, outside the pool's lock. Before a
// pool forgets a stream, it waits for these calls: afterwards the stream's handle may be gone, or mean another stream.
//
// Any thread. Its own lock guards bookkeeping only.
#ifndef COMMPOOL_SRC_LIBRARY_POOL_BASIS_RECORDING_STREAMS_H_
#define COMMPOOL_SRC_LIBRARY_POOL_BASIS_RECORDING_STREAMS_H_

#include <atomic>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "src/library/base/mutex.h"
#include "src/library/stream/stream_key.h"

namespace commpool::internal {

// PoolBasis owns one. Free and the modes' allocations make scopes; BlockStore::ForgetStream waits for them.
class RecordingStreams {
 public:
  // While it lives, calls may record on its streams. Make it under the same hold of the pool's lock that found the
  // streams: ForgetStream takes that lock too, and then waits for the scope's end, so it misses no recording.
  class Scope {
   public:
    Scope(RecordingStreams& owner, std::vector<StreamKey> streams) : owner_(owner), streams_(std::move(streams)) {
      MutexLock lock(owner_.mutex_);
      owner_.streams_.insert(streams_.begin(), streams_.end());
    }
    ~Scope() {
      {
        MutexLock lock(owner_.mutex_);
        for (const StreamKey stream : streams_) owner_.streams_.erase(owner_.streams_.find(stream));
      }
      owner_.ended_.fetch_add(1, std::memory_order_release);
      owner_.ended_.notify_all();
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    RecordingStreams& owner_;
    const std::vector<StreamKey> streams_;
  };

  // Waits until no call is about to record on the stream. REQUIRES: no new scope names the stream.
  void AwaitEnd(StreamKey stream) {
    for (;;) {
      const uint32_t ended = ended_.load(std::memory_order_acquire);
      {
        MutexLock lock(mutex_);
        if (!streams_.contains(stream)) return;
      }
      ended_.wait(ended, std::memory_order_acquire);
    }
  }

 private:
  Mutex mutex_{LockRank::kLeaf};
  // A multiset, because several calls may be about to record on one stream.
  std::multiset<StreamKey> streams_ COMMPOOL_GUARDED_BY(mutex_);
  std::atomic<uint32_t> ended_{0};  // how many scopes have ended, to wait for the next
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_POOL_BASIS_RECORDING_STREAMS_H_
