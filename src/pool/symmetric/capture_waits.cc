#include "src/pool/symmetric/capture_waits.h"

#include <utility>

#include "src/driver/graph_handles.h"

namespace commpool::internal {

Result<engine::Part> CaptureWaits::PartOf(StreamKey stream) const {
  if (!basis_.device->captures().any() || !IsReachable(stream)) return engine::kCommonPart;
  const ContextGuard current = basis_.MakeCurrent();
  return captures_.PartOf(StreamOfKey(stream));
}

Status CaptureWaits::Await(const engine::StreamUse& use) const {
  DeviceState& device = *basis_.device;
  if (use.fence != engine::kNoFence) return device.Await(use.fence, basis_.deadline_ms());
  if (!IsReachable(use.stream)) {
    return Status(StatusCode::kFailedPrecondition,
                  "the block was used on another thread's default stream, which a capture cannot wait for: synchronise "
                  "the device before the capture and reclaim()");
  }
  Result<FenceId> fence = device.fences().Record(use.stream);
  if (!fence.ok()) return fence.status();
  Status status = device.Await(*fence, basis_.deadline_ms());
  device.fences().Retire(*fence);
  return status;
}

Status CaptureWaits::AwaitOutside(engine::Part part, ReservedVector<engine::StreamUse>* waits) const {
  if (waits->empty()) return Status();
  const ContextGuard current = basis_.MakeCurrent();
  const RelaxedCapture relaxed(basis_.driver);
  PoolEvents::Count(basis_.events.host_waits);
  ReservedVector<engine::StreamUse> inside;
  for (const engine::StreamUse& use : *waits) {
    const Result<engine::Part> user = PartOf(use.stream);
    if (!user.ok()) return basis_.Named(user.status());
    if (use.fence == engine::kNoFence && *user == part) {
      inside.push_back(use);
      continue;
    }
    if (use.fence == engine::kNoFence && *user != engine::kCommonPart) {
      return Status(
          StatusCode::kFailedPrecondition,
          basis_.title + ": the block was used on a stream of another capture, which this one cannot wait for");
    }
    Status status = Await(use);
    if (!status.ok()) return basis_.Named(status);
  }
  *waits = std::move(inside);
  return Status();
}

}  // namespace commpool::internal
