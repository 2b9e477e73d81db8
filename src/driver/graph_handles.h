// What code needs while somebody else captures a CUDA graph: an object that lives as long as the graph, and a way to
// make calls that a capture forbids.
//
// One thread at a time uses a user object; it keeps a pointer to its Driver.
#ifndef COMMPOOL_SRC_DRIVER_GRAPH_HANDLES_H_
#define COMMPOOL_SRC_DRIVER_GRAPH_HANDLES_H_

#include <cuda.h>

#include "commpool/status.h"
#include "src/driver/diagnosis.h"
#include "src/driver/handle.h"
#include "src/driver/loader.h"

namespace commpool::internal {

struct UserObjectTraits {
  using Value = CUuserObject;
  static constexpr CallSite kRelease{.call = "cuUserObjectRelease"};
  static CUresult Release(const CudaDriver& cuda, const Value& object) { return cuda.cuUserObjectRelease(object, 1); }
};

// One reference to a user object (cuUserObjectCreate), the caller's or a graph's.
class UserObject : public Handle<UserObjectTraits> {
 public:
  // `callback(context)` runs once, on a thread of the driver's, some time after the last reference is gone: that of
  // this object, of the graph it was moved to, of what was instantiated from that, and of launches still running. It
  // may call no CUDA and should not block. It does not run where Create fails.
  static Result<UserObject> Create(const Driver& driver, CUhostFn callback, void* context);

  using Handle::Handle;
  CUuserObject get() const { return value(); }
  // The graph owns the reference from now on, and this is empty. After an error nothing has changed.
  Status MoveTo(CUgraph graph);
};

// Asks the driver, and breaks no capture.
Result<CUstreamCaptureStatus> CaptureStatusOf(const Driver& driver, CUstream stream, const char* likely_cause = "");

// The graph that the stream's capture is making; null where the stream captures nothing. kDriverError where the capture
// is broken, or another stream's capture makes this one unusable.
Result<CUgraph> GraphInCapture(const Driver& driver, CUstream stream);

// While it lives this thread may make calls that a capture forbids for caution (cuMemAlloc, cuEventQuery), for work
// that no replay has to repeat.
class [[nodiscard]] RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver);
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_;
  CUstreamCaptureMode other_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // the mode to exchange with the thread's
  bool exchanged_ = false;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_DRIVER_GRAPH_HANDLES_H_
