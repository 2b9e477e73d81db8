// Finds the device that a stream belongs to. It asks the driver once for each stream. Runtime owns one. Any thread.
//
// The driver gives a destroyed stream's handle to the next stream, even on another device. So an answer is remembered
// for the stream's key, not for the handle.
#ifndef COMMPOOL_SRC_STREAM_STREAM_DEVICES_H_
#define COMMPOOL_SRC_STREAM_STREAM_DEVICES_H_

#include <cuda.h>

#include <unordered_map>

#include "commpool/status.h"
#include "src/base/mutex.h"
#include "src/driver/loader.h"
#include "src/stream/stream_key.h"

namespace commpool::internal {

class StreamDevices {
 public:
  explicit StreamDevices(const Driver& driver) : driver_(driver) {}

  // The device of a stream that the current call passes. For the default streams it is the calling thread's current
  // device; kFailedPrecondition where no context is current.
  Result<int> DeviceOf(CUstream stream, StreamKey key);
  // Forgets a promised stream, because its handle will mean another stream.
  void Forget(CUstream stream);

 private:
  Result<int> CurrentDevice() const;

  const Driver& driver_;
  Mutex mutex_{LockRank::kStream};
  struct Known {
    StreamKey key;
    int device;
  };
  std::unordered_map<CUstream, Known> devices_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_STREAM_STREAM_DEVICES_H_
