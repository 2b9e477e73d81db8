// One key for each stream: handles are not streams (rule 11).
//
// 0 and CU_STREAM_LEGACY are one stream; CU_STREAM_PER_THREAD is a different stream on each thread; a handle tells any
// other stream apart until `release_stream`. Pure functions: any thread.
#ifndef COMMPOOL_SRC_STREAM_STREAM_KEY_H_
#define COMMPOOL_SRC_STREAM_STREAM_KEY_H_

#include <cuda.h>

#include <cstdint>

namespace commpool::internal {

using StreamKey = uint64_t;

inline constexpr StreamKey kKeyOfLegacyStream = 1;

// The key of CU_STREAM_PER_THREAD on the calling thread.
StreamKey KeyOfPerThreadStream();

// The key of a handle as the calling thread means it.
inline StreamKey KeyOfStream(CUstream stream) {
  const auto key = reinterpret_cast<StreamKey>(stream);
  // The default streams' handles are 0, 1 (CU_STREAM_LEGACY) and 2 (CU_STREAM_PER_THREAD); the rest are pointers.
  if (key > 2) [[likely]]
    return key;
  return key == 2 ? KeyOfPerThreadStream() : kKeyOfLegacyStream;
}

// Whether the calling thread can submit work to the stream: not to another thread's per-thread default stream.
bool IsReachable(StreamKey key);

// The handle by which the calling thread reaches the stream. REQUIRES: IsReachable(key).
CUstream StreamOfKey(StreamKey key);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_STREAM_STREAM_KEY_H_
