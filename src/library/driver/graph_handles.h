// For code that runs while others capture a CUDA graph: an object that lives as long as the graph, and a way to make
// calls that a capture forbids.
//
// One thread at a time uses a user object; it keeps a pointer to its Driver.
#pragma once

#include <cuda.h>

#include "commpool/status.h"
#include "src/library/driver/diagnosis.h"
#include "src/library/driver/handles.h"
#include "src/library/driver/loader.h"

namespace commpool::internal {

// One reference to a user object (cuUserObjectCreate). A caller or a graph owns it.
class UserObject : public Handle<UserObject, CUuserObject> {
 public:
  static constexpr CallSite kRelease{.call = "cuUserObjectRelease"};
  static CUresult ReleaseValue(const CudaDriver& cuda, CUuserObject object) {
    return cuda.cuUserObjectRelease(object, 1);
  }

  // `callback(context)` runs once, on a thread of the driver, some time after the last reference is gone: the reference
  // of this object, of the graph that it moved to, of what was instantiated from that graph, and of running launches.
  // It may call no CUDA and should not block. It does not run where Create fails.
  static Result<UserObject> Create(const Driver& driver, CUhostFn callback, void* context);

  using Handle::Handle;
  // Gives the reference to the graph; this object is empty then. After an error nothing has changed.
  Status MoveTo(CUgraph graph);
};

// Asks the driver; the question breaks no capture.
Result<CUstreamCaptureStatus> CaptureStatusOf(const Driver& driver, CUstream stream, const char* likely_cause = "");

// The graph that the stream's capture makes; null where the stream captures nothing. kDriverError where the capture is
// broken, or another stream's capture makes this stream unusable. `number`, where not null, gets that of the capture,
// which no other capture of the process has; graphs' addresses come back.
Result<CUgraph> GraphInCapture(const Driver& driver, CUstream stream, cuuint64_t* number = nullptr);

// While it lives, this thread may make calls that a capture forbids only as a precaution (cuMemAlloc, cuEventQuery).
// Use it for work that a replay of the graph need not repeat.
class [[nodiscard]] RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver);
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_;
  CUstreamCaptureMode other_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // the mode to exchange with the thread's own
  bool exchanged_ = false;
};

}  // namespace commpool::internal
