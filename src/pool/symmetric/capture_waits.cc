#include "src/pool/symmetric/capture_waits.h"

#include <utility>

#include "src/driver/graph_handles.h"

namespace commpool::internal {

Result<engine::Part> CaptureWaits::PartOf(StreamKey stream) const {
  if (!parts_.basis.device->captures().any() || !IsReachable(stream)) return engine::kCommonPart;
  const ContextGuard current = parts_.basis.MakeCurrent();
  return parts_.captures.PartOf(StreamOfKey(stream));
}

Status CaptureWaits::Await(const engine::StreamUse& use) const {
  DeviceState& device = *parts_.basis.device;
  if (use.fence != engine::kNoFence) return device.Await(use.fence, parts_.basis.deadline_ms());
  if (!IsReachable(use.stream)) {
    return Status(StatusCode::kFailedPrecondition,
                  "the block was used on another thread's default stream, which a capture cannot wait for: synchronise "
                  "the device before the capture and reclaim()");
  }
  Result<FenceId> fence = device.fences().Record(use.stream);
  if (!fence.ok()) return fence.status();
  Status status = device.Await(*fence, parts_.basis.deadline_ms());
  device.fences().Retire(*fence);
  return status;
}

Status CaptureWaits::AwaitOutside(engine::Part part, ReservedVector<engine::StreamUse>* waits) const {
  if (waits->empty()) return Status();
  const ContextGuard current = parts_.basis.MakeCurrent();
  const RelaxedCapture relaxed(parts_.basis.driver);
  PoolEvents::Count(parts_.events.host_waits);
  ReservedVector<engine::StreamUse> inside;
  for (const engine::StreamUse& use : *waits) {
    const Result<engine::Part> user = PartOf(use.stream);
    if (!user.ok()) return parts_.basis.Named(user.status());
    if (use.fence == engine::kNoFence && *user == part) {
      inside.push_back(use);
      continue;
    }
    if (use.fence == engine::kNoFence && *user != engine::kCommonPart) {
      return Status(
          StatusCode::kFailedPrecondition,
          parts_.basis.title + ": the block was used on a stream of another capture, which this one cannot wait for");
    }
    Status status = Await(use);
    if (!status.ok()) return parts_.basis.Named(status);
  }
  *waits = std::move(inside);
  return Status();
}

}  // namespace commpool::internal
