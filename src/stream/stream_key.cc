#include "src/stream/stream_key.h"

#include <atomic>

#include "src/base/check.h"

namespace commpool {

namespace {

// Handles are pointers to aligned objects: keys with one of the low bits set are free for the default streams.
constexpr StreamKey kLegacy = 1;
constexpr StreamKey kPerThreadBit = 2;

StreamKey KeyOfThisThread() {
  static std::atomic<StreamKey> next{1};
  thread_local const StreamKey key = (next.fetch_add(1, std::memory_order_relaxed) << 3) | kPerThreadBit;
  return key;
}

}  // namespace

StreamKey KeyOfDefaultStream(CUstream stream) {
  return stream == CU_STREAM_PER_THREAD ? KeyOfThisThread() : kLegacy;
}

bool IsReachable(StreamKey key) { return (key & kPerThreadBit) == 0 || key == KeyOfThisThread(); }

CUstream StreamOfKey(StreamKey key) {
  if (key == kLegacy) return CU_STREAM_LEGACY;
  if ((key & kPerThreadBit) == 0) return reinterpret_cast<CUstream>(key);
  COMMPOOL_CHECK(key == KeyOfThisThread(), "another thread's per-thread default stream has no handle here");
  return CU_STREAM_PER_THREAD;
}

}  // namespace commpool
