// The waits of the host before a capture gets a block of a symmetric pool. A graph owns such a block until it is gone:
// even if the program frees the block before, this rank does not offer it to the other ranks (Reason::kGraph).
#include <vector>

#include "src/library/base/try.h"
#include "src/library/driver/graph_handles.h"
#include "src/library/pool/symmetric/symmetric_mode.h"

namespace commpool::internal {

// An event that exists is waited for. Else a new one behind all of the stream's work, where an event can be recorded on
// that stream.
Status SymmetricMode::Await(const engine::StreamUse& use) const {
  // A stream without a fence captures nothing here: the caller has looked.
  FenceTable& fences = basis_.fences();
  if (use.fence != engine::kNoFence) return fences.Await(use.fence, basis_.deadline_ms());
  if (!IsReachable(use.stream)) {
    return Status(StatusCode::kFailedPrecondition,
                  "the block was used on another thread's default stream, or on one that may be gone (option streams), "
                  "which a capture cannot wait for: synchronise "
                  "the device before the capture and reclaim()");
  }
  const FenceId fence = COMMPOOL_TRY(fences.Record(use.stream));
  Status status = fences.Await(fence, basis_.deadline_ms());
  fences.Retire(fence);
  return status;
}

// A wait on the device for work outside of the capture would pull that work into the graph, or fail. So the host waits.
Status SymmetricMode::AwaitOutside(engine::Part part, std::vector<engine::StreamUse>* waits) const {
  if (waits->empty()) return Status();
  // The calls below are made while a stream captures, which allows them in relaxed mode only.
  const RelaxedCapture relaxed(basis_.driver);
  PoolEvents::Count(basis_.events.host_waits);
  std::vector<engine::StreamUse> inside;
  for (const engine::StreamUse& use : *waits) {
    // A use by a stream of this capture needs no wait of the host.
    const engine::Part user = COMMPOOL_TRY(captures_.PartOf(use.stream));
    if (use.fence == engine::kNoFence && user == part) {
      inside.push_back(use);
      continue;
    }
    if (use.fence == engine::kNoFence && user != engine::kCommonPart) {
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
