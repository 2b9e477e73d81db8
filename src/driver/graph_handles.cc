#include "src/driver/graph_handles.h"

namespace commpool::internal {

Result<UserObject> UserObject::Create(const Driver& driver, CUhostFn callback, void* context) {
  CUuserObject object = nullptr;
  Status status = CheckCuda(
      driver, driver.cuda.cuUserObjectCreate(&object, context, callback, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
      {.call = "cuUserObjectCreate"});
  if (!status.ok()) return status;
  return UserObject(driver, object);
}

Status UserObject::MoveTo(CUgraph graph) {
  if (!valid()) return Status(StatusCode::kInvalidArgument, "user object: it is empty");
  Status status = CheckCuda(driver(), driver().cuda.cuGraphRetainUserObject(graph, get(), 1, CU_GRAPH_USER_OBJECT_MOVE),
                            {.call = "cuGraphRetainUserObject"});
  if (status.ok()) Abandon();  // the graph gives it back
  return status;
}

CUresult UserObjectTraits::Release(const CudaDriver& cuda, const Value& object) {
  return cuda.cuUserObjectRelease(object, 1);
}

CallSite UserObjectTraits::Site(const Value&) { return {.call = "cuUserObjectRelease"}; }

Result<CUgraph> GraphInCapture(const Driver& driver, CUstream stream) {
  CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
  Status status =
      CheckCuda(driver, driver.cuda.cuStreamIsCapturing(stream, &capturing), {.call = "cuStreamIsCapturing"});
  if (!status.ok()) return status;
  CUgraph graph = nullptr;
  if (capturing == CU_STREAM_CAPTURE_STATUS_NONE) return graph;
  if (capturing == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    status = CheckCuda(
        driver, driver.cuda.cuStreamGetCaptureInfo(stream, &capturing, nullptr, &graph, nullptr, nullptr, nullptr),
        {.call = "cuStreamGetCaptureInfo"});
    if (!status.ok()) return status;
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
