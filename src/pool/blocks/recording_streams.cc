#include "src/pool/blocks/recording_streams.h"

namespace commpool::internal {

RecordingStreams::Scope RecordingStreams::Begin(const ReservedVector<StreamKey>& streams) {
  if (streams.empty()) return Scope();
  MutexLock lock(mutex_);
  streams_.insert(streams.begin(), streams.end());
  return Scope(this, streams);
}

void RecordingStreams::Scope::End() {
  if (owner_ == nullptr) return;
  RecordingStreams& owner = *std::exchange(owner_, nullptr);
  {
    MutexLock lock(owner.mutex_);
    for (const StreamKey stream : streams_) owner.streams_.erase(owner.streams_.find(stream));
  }
  owner.ended_.fetch_add(1, std::memory_order_release);
  owner.ended_.notify_all();
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
