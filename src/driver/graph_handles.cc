#include "src/driver/graph_handles.h"

#include "src/base/log.h"
#include "src/driver/diagnosis.h"

namespace commpool::internal {

void UserObject::Swap(UserObject& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(object_, other.object_);
}

Result<UserObject> UserObject::Create(const Driver& driver, CUhostFn callback, void* context) {
  UserObject object;
  Status status = CheckCuda(
      driver, driver.cuda.cuUserObjectCreate(&object.object_, context, callback, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
      {.call = "cuUserObjectCreate"});
  if (!status.ok()) return status;
  object.driver_ = &driver;
  return object;
}

Status UserObject::MoveTo(CUgraph graph) {
  if (!valid()) return Status(StatusCode::kInvalidArgument, "user object: it is empty");
  Status status =
      CheckCuda(*driver_, driver_->cuda.cuGraphRetainUserObject(graph, object_, 1, CU_GRAPH_USER_OBJECT_MOVE),
                {.call = "cuGraphRetainUserObject"});
  if (status.ok()) driver_ = nullptr;
  return status;
}

Status UserObject::Release() {
  if (!valid()) return Status();
  const Driver& driver = *std::exchange(driver_, nullptr);
  return CheckCuda(driver, driver.cuda.cuUserObjectRelease(object_, 1), {.call = "cuUserObjectRelease"});
}

UserObject::~UserObject() {
  if (!valid()) return;
  const CUresult result = driver_->cuda.cuUserObjectRelease(object_, 1);
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED) return;
  Log(LogLevel::kWarning, CheckCuda(*driver_, result, {.call = "cuUserObjectRelease"}).message());
}

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
