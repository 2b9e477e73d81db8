// Knows which stream a handle means now, and which streams the program has promised. A promised stream outlives its
// use, because the program calls release_stream before it destroys the stream. Runtime owns one. Any thread; only
// promises and releases take the lock.
#ifndef COMMPOOL_SRC_STREAM_STREAM_NAMES_H_
#define COMMPOOL_SRC_STREAM_STREAM_NAMES_H_

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "commpool/status.h"
#include "src/base/mutex.h"
#include "src/driver/loader.h"
#include "src/stream/stream_key.h"

namespace commpool::internal {

// A stream that the current call passes.
struct StreamName {
  StreamKey key = 0;       // by which this call reaches the stream (PassedStream)
  StreamKey identity = 0;  // its identity: the same before and after a promise
};

class StreamNames {
 public:
  explicit StreamNames(const Driver& driver) : driver_(driver) {}

  // Names the stream of a handle that the current call passes. kInvalidArgument where the driver knows no such stream.
  // For a stream without a promise it asks the driver twice (50 ns): first whether the stream captures, because a
  // capturing stream must not be asked for its number.
  Result<StreamName> NameOf(CUstream stream) const;
  // Whether the handle still means the stream. Asks the driver only for streams without a promise.
  bool Means(CUstream stream, StreamKey key) const { return !IsUnpromised(key) || HasKey(stream, key); }

  // The handle that a stream had when a call last passed it, for messages only: nobody may use it. 0 where that is too
  // long ago.
  uint64_t ShownHandle(StreamKey key) const;

  // Promises the stream until Release. With too many promises the stream stays without one: that is slower, and still
  // right.
  Status Promise(CUstream stream);
  void Release(CUstream stream);
  // Default streams count as promised: they never end.
  bool IsPromised(CUstream stream) const;

 private:
  struct Place {
    std::atomic<CUstream> stream = nullptr;
    std::atomic<StreamKey> identity = 0;
  };

  // The newest streams without a promise: finds handles by number, and numbers by handle.
  struct Shown {
    std::atomic<StreamKey> key = 0;
    std::atomic<CUstream> stream = nullptr;
  };
  static constexpr size_t kShown = 1024;
  void Show(StreamKey key, CUstream stream) const;

  Result<StreamKey> AskFor(CUstream stream) const;
  bool HasKey(CUstream stream, StreamKey key) const;
  const Place* Find(CUstream stream) const;

  static constexpr size_t kPlaces = 4096;
  static constexpr size_t kMostPromised = kPlaces / 2;
  static size_t PlaceOf(CUstream stream) { return (reinterpret_cast<size_t>(stream) >> 4) * 0x9E3779B97F4A7C15 >> 52; }

  const Driver& driver_;
  Mutex mutex_{LockRank::kStream};
  size_t taken_ COMMPOOL_GUARDED_BY(mutex_) = 0;  // places ever taken: a free place is used again later
  // Places by hash; where a place is taken, the next free one behind it.
  std::array<Place, kPlaces> places_ = {};
  mutable std::array<Shown, kShown> shown_ = {};
  mutable std::array<Shown, kShown> newest_ = {};
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_STREAM_STREAM_NAMES_H_
