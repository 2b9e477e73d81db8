#include "src/pool/blocks/recording_streams.h"

#include <utility>

namespace commpool::internal {

RecordingStreams::Scope::Scope(RecordingStreams& owner, ReservedVector<StreamKey> streams)
    : owner_(owner), streams_(std::move(streams)) {
  MutexLock lock(owner_.mutex_);
  owner_.streams_.insert(streams_.begin(), streams_.end());
}

RecordingStreams::Scope::~Scope() {
  {
    MutexLock lock(owner_.mutex_);
    for (const StreamKey stream : streams_) owner_.streams_.erase(owner_.streams_.find(stream));
  }
  owner_.ended_.fetch_add(1, std::memory_order_release);
  owner_.ended_.notify_all();
}

void RecordingStreams::AwaitEnd(StreamKey stream) {
  for (;;) {
    const uint32_t ended = ended_.load(std::memory_order_acquire);
    {
      MutexLock lock(mutex_);
      if (!streams_.contains(stream)) return;
    }
    ended_.wait(ended, std::memory_order_acquire);
  }
}

}  // namespace commpool::internal
