#include "src/library/driver/graph_handles.h"

#include "src/library/base/try.h"

namespace commpool::internal {

Result<UserObject> UserObject::Create(const Driver& driver, CUhostFn callback, void* context) {
  CUuserObject object = nullptr;
  const CUresult result =
      driver.cuda.cuUserObjectCreate(&object, context, callback, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  return Made(driver, result, object, {.call = "cuUserObjectCreate"});
}

Status UserObject::MoveTo(CUgraph graph) {
  if (!valid()) return InvalidArgument("user object: it is empty");
  Status status = CheckCuda(driver(), driver().cuda.cuGraphRetainUserObject(graph, get(), 1, CU_GRAPH_USER_OBJECT_MOVE),
                            {.call = "cuGraphRetainUserObject"});
  if (status.ok()) Abandon();  // the graph will release it
  return status;
}

// The driver would take the handle of no stream for a pointer. Programs' streams are asked here before all else.
Result<CUstreamCaptureStatus> CaptureStatusOf(const Driver& driver, CUstream stream, const char* likely_cause) {
  if (stream == COMMPOOL_NO_STREAM) {
    return InvalidArgument(
        "COMMPOOL_NO_STREAM is for commpool_pool_allocate alone, from a PINNED pool with deferred frees");
  }
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuStreamIsCapturing(stream, &status),
                         {.call = "cuStreamIsCapturing", .likely_cause = likely_cause}));
  return status;
}

Result<CUgraph> GraphInCapture(const Driver& driver, CUstream stream, cuuint64_t* number) {
  CUstreamCaptureStatus capturing = COMMPOOL_TRY(CaptureStatusOf(driver, stream));
  CUgraph graph = nullptr;
  if (capturing == CU_STREAM_CAPTURE_STATUS_NONE) return graph;
  if (capturing == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    const CUresult result =
        driver.cuda.cuStreamGetCaptureInfo(stream, &capturing, number, &graph, nullptr, nullptr, nullptr);
    COMMPOOL_TRY(CheckCuda(driver, result, {.call = "cuStreamGetCaptureInfo"}));
  }
  if (graph != nullptr) return graph;
  return CheckCuda(driver, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, {.call = "capture"});
}

RelaxedCapture::RelaxedCapture(const Driver& driver)
    : driver_(driver), exchanged_(driver.cuda.cuThreadExchangeStreamCaptureMode(&other_) == CUDA_SUCCESS) {}

RelaxedCapture::~RelaxedCapture() {
  if (exchanged_) driver_.cuda.cuThreadExchangeStreamCaptureMode(&other_);
}

}  // namespace commpool::internal
