// A symmetric pool's block for a capture: what the block still waits for must not become part of the graph.
//
// Any thread. Calls the driver and may wait on the host; never under a lock.
#ifndef COMMPOOL_SRC_POOL_SYMMETRIC_CAPTURE_WAITS_H_
#define COMMPOOL_SRC_POOL_SYMMETRIC_CAPTURE_WAITS_H_

#include "commpool/status.h"
#include "src/engine/types.h"
#include "src/pool/captures/graph_captures.h"
#include "src/pool/pool_basis.h"

namespace commpool::internal {

class CaptureWaits {
 public:
  CaptureWaits(PoolBasis& basis, const GraphCaptures& captures) : basis_(basis), captures_(captures) {}

  // The part of the capture that the stream is in; the common part outside of captures.
  Result<engine::Part> PartOf(StreamKey stream) const;

  // Waits on the host for the uses that lie outside of the capture of `part`; `waits` keeps those inside, for which a
  // device-side wait is an edge of the graph. kFailedPrecondition for a use in another capture.
  Status AwaitOutside(engine::Part part, ReservedVector<engine::StreamUse>* waits) const;

 private:
  Status Await(const engine::StreamUse& use) const;

  PoolBasis& basis_;
  const GraphCaptures& captures_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SYMMETRIC_CAPTURE_WAITS_H_
