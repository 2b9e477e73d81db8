#include "src/library/stream/stream_key.h"

#include <atomic>
#include <utility>

#include "src/library/base/check.h"

namespace commpool::internal {

namespace {

thread_local KeyAndHandle passed;

}  // namespace

void PassedStream::Begin(StreamKey key, CUstream handle) { outer_ = std::exchange(passed, {key, handle}); }

void PassedStream::End() { passed = outer_; }

StreamKey NameOfPerThreadStream() {
  static std::atomic<StreamKey> next{1};
  thread_local const StreamKey name =
      (next.fetch_add(1, std::memory_order_relaxed) << 3) | kPerThreadBit | engine::kUnpromisedBit;
  return name;
}

bool IsReachable(StreamKey key) {
  if (IsPerThread(key)) return WithoutPlace(key) == NameOfPerThreadStream();
  return IsUnpromised(key) ? key == passed.key : key != kNoStream;
}

CUstream StreamOfKey(StreamKey key) {
  COMMPOOL_CHECK(key != kNoStream, "a block without a stream waits for nobody, and no work goes to it");
  COMMPOOL_CHECK(IsReachable(key), "a stream that may be gone has no handle outside of the call that passes it");
  const StreamKey name = WithoutPlace(key);
  if (IsPerThread(name)) return CU_STREAM_PER_THREAD;
  if (IsLegacy(key)) return CU_STREAM_LEGACY;
  return IsUnpromised(key) ? passed.handle : reinterpret_cast<CUstream>(name);
}

}  // namespace commpool::internal
