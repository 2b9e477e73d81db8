#include "src/stream/stream_key.h"

#include <atomic>

#include "src/base/check.h"

namespace commpool::internal {

namespace {

// Handles are pointers to aligned objects, so keys with a low bit set are free for the default streams.
constexpr StreamKey kPerThreadBit = 2;

struct Passed {
  StreamKey key = 0;
  CUstream handle = nullptr;
};

thread_local Passed passed;

}  // namespace

void PassedStream::Begin(StreamKey key, CUstream handle) {
  outer_key_ = passed.key;
  outer_handle_ = passed.handle;
  passed = {key, handle};
}

void PassedStream::End() { passed = {outer_key_, outer_handle_}; }

StreamKey KeyOfPerThreadStream() {
  static std::atomic<StreamKey> next{1};
  thread_local const StreamKey key = (next.fetch_add(1, std::memory_order_relaxed) << 3) | kPerThreadBit;
  return key;
}

bool IsReachable(StreamKey key) {
  if (IsUnpromised(key)) return key == passed.key;
  if ((key & kPerThreadBit) != 0) return key == KeyOfPerThreadStream();
  return key != kNoStream;
}

CUstream StreamOfKey(StreamKey key) {
  COMMPOOL_CHECK(key != kNoStream, "a block without a stream waits for nobody, and no work goes to it");
  if (IsUnpromised(key)) {
    COMMPOOL_CHECK(key == passed.key, "a stream that may be gone has no handle outside of the call that passes it");
    return passed.handle;
  }
  // The legacy stream's key equals its handle.
  if ((key & kPerThreadBit) == 0) return reinterpret_cast<CUstream>(key);
  COMMPOOL_CHECK(key == KeyOfPerThreadStream(), "another thread's per-thread default stream has no handle here");
  return CU_STREAM_PER_THREAD;
}

}  // namespace commpool::internal
