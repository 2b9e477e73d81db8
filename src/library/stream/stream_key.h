// One key for each stream: its place and its name. Handles are not streams, and streams die (rule 11).
//
// The place is the device of the stream's context: each device has its own default streams. 0 and CU_STREAM_LEGACY are
// one stream; CU_STREAM_PER_THREAD is a different stream on each thread, and ends with it. A promised stream
// (stream_names.h) is identified by its handle, until `release_stream`. Any other stream is identified by the number
// that the driver gives it and never gives again. Its handle may already mean another stream, and a call on a dead
// handle crashes. So its key leads to the handle only inside a call that passes the stream (PassedStream). Any thread.
#pragma once

#include <cuda.h>

#include "src/library/engine/types.h"

namespace commpool::internal {

using engine::AtPlace;
using engine::IsUnpromised;
using engine::kNoStream;
using engine::PlaceOf;
using engine::StreamKey;
using engine::WithoutPlace;

// Whether the handle means another stream on each device: 0, CU_STREAM_LEGACY (1) and CU_STREAM_PER_THREAD (2). All
// other handles are pointers.
inline bool IsDefault(CUstream stream) { return reinterpret_cast<uintptr_t>(stream) <= 2; }

// The legacy stream of some device, which nobody can capture. Handles are pointers to aligned objects, so names with a
// low bit set are free for the default streams.
inline bool IsLegacy(StreamKey key) { return WithoutPlace(key) == 1; }

// The bit of CU_STREAM_PER_THREAD of some thread. Other names have no bit below kUnpromisedBit, or are the legacy
// stream's.
inline constexpr StreamKey kPerThreadBit = 2;
inline bool IsPerThread(StreamKey key) { return (key & kPerThreadBit) != 0; }
// The name of CU_STREAM_PER_THREAD on the calling thread. It has kUnpromisedBit, for the stream ends with its thread.
StreamKey NameOfPerThreadStream();

// The key of a default stream's or promised stream's handle at a place, as the calling thread means it.
inline StreamKey KeyOfStream(CUstream stream, int place) {
  const auto name = reinterpret_cast<StreamKey>(stream);
  if (name > 2) [[likely]]
    return AtPlace(place, name);
  return AtPlace(place, name == 2 ? NameOfPerThreadStream() : 1);
}

// The name of a stream without a promise; `id` is from cuStreamGetId.
constexpr StreamKey NameOfId(unsigned long long id) { return (StreamKey{id} << 3) | engine::kUnpromisedBit; }
// The name of a stream that captures: nobody may ask the driver for its number.
inline StreamKey NameOfCaptured(CUstream stream) {
  return reinterpret_cast<StreamKey>(stream) | engine::kUnpromisedBit;
}

struct KeyAndHandle {
  StreamKey key = 0;
  CUstream handle = nullptr;
};

// A stream that the calling thread's current call passes. Its handle is alive as long as this object lives.
class PassedStream {
 public:
  PassedStream(StreamKey key, CUstream handle) : needed_(IsUnpromised(key)) {
    if (needed_) [[unlikely]]
      Begin(key, handle);
  }
  ~PassedStream() {
    if (needed_) [[unlikely]]
      End();
  }
  PassedStream(const PassedStream&) = delete;
  PassedStream& operator=(const PassedStream&) = delete;

 private:
  void Begin(StreamKey key, CUstream handle);
  void End();

  const bool needed_;  // false for a promised stream: its key is enough
  KeyAndHandle outer_;
};

// Whether the calling thread can submit work to the stream. It cannot to another thread's per-thread default stream,
// to a stream without a promise that this call does not pass, and to kNoStream.
bool IsReachable(StreamKey key);
// Whether the stream may be gone: nobody promised it, and this call does not pass it. Then its memory waits for the
// device.
inline bool MayHaveDied(StreamKey key) { return IsUnpromised(key) && !IsReachable(key); }

// The handle by which the calling thread reaches the stream while its place is current. REQUIRES: IsReachable(key).
CUstream StreamOfKey(StreamKey key);

}  // namespace commpool::internal
