// Knows which stream a handle means now, at which place it is, and which streams the program has promised. A promised
// stream outlives its use, because the program calls release_stream before it destroys the stream. Default streams are
// no matter of this class: what their handles mean depends on the call. Runtime owns one. Any thread; only promises and
// releases take the lock.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "commpool/status.h"
#include "src/library/base/mutex.h"
#include "src/library/driver/loader.h"
#include "src/library/stream/stream_key.h"
#include "src/library/stream/stream_places.h"

namespace commpool::internal {

// A stream that the current call passes.
struct StreamName {
  StreamKey key = 0;       // by which this call reaches the stream (PassedStream)
  StreamKey identity = 0;  // its identity: the same before and after a promise
};

class StreamNames {
 public:
  StreamNames(const Driver& driver, StreamPlaces& places) : driver_(driver), places_(places) {}

  // Names the stream of a handle that the current call passes. kInvalidArgument where the driver knows no such stream,
  // kNotSupported where its context is no primary one. For a stream without a promise it asks the driver twice (50 ns):
  // first whether the stream captures, because a capturing stream must not be asked for its number. For the place it
  // asks once, when it sees the number first. REQUIRES: no default stream.
  Result<StreamName> NameOf(CUstream stream) const;
  // Whether the handle still means the stream. Asks the driver only for streams without a promise.
  bool Means(CUstream stream, StreamKey key) const {
    if (!IsUnpromised(key) || IsDefault(stream)) return true;
    const Result<bool> same = HasNameOf(stream, key);
    return same.ok() && *same;
  }
  // Whether the driver knows the stream by this name. REQUIRES: no default stream, and none that captures.
  Result<bool> HasNameOf(CUstream stream, StreamKey key) const;

  // The handle that a stream had when a call last passed it, for messages only: nobody may use it. 0 where that is too
  // long ago.
  uint64_t ShownHandle(StreamKey key) const;

  // Promises the stream until Release. With too many promises the stream stays without one: that is slower, and still
  // right.
  Status Promise(CUstream stream);
  void Release(CUstream stream);
  // Default streams count as promised: the program cannot destroy them.
  bool IsPromised(CUstream stream) const { return IsDefault(stream) || Find(stream) != nullptr; }

 private:
  struct Known {
    std::atomic<CUstream> stream = nullptr;
    std::atomic<StreamKey> key = 0;  // of a promised stream: its identity
  };

  static constexpr size_t kShown = 1024;
  void Show(StreamKey key, CUstream stream) const;
  Known& ShownOf(StreamKey name) const { return shown_[(name >> 3) % kShown]; }

  // The stream's name, without its place.
  Result<StreamKey> AskFor(CUstream stream) const;
  const Known* Find(CUstream stream) const;

  static constexpr size_t kEntries = 4096;
  static constexpr size_t kMostPromised = kEntries / 2;
  static size_t HashOf(CUstream stream) { return (reinterpret_cast<size_t>(stream) >> 4) * 0x9E3779B97F4A7C15 >> 52; }

  const Driver& driver_;
  StreamPlaces& places_;
  Mutex mutex_{LockRank::kStream};
  size_t taken_ COMMPOOL_GUARDED_BY(mutex_) = 0;  // entries of streams, and those left that look-ups pass
  // By hash; where an entry is taken, the next free one behind it.
  std::array<Known, kEntries> promised_ = {};
  // The newest streams without a promise: finds handles and places by number, and numbers by handle.
  mutable std::array<Known, kShown> shown_ = {};
  mutable std::array<Known, kShown> newest_ = {};
};

}  // namespace commpool::internal
