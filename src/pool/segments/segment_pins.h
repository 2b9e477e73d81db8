// Why a segment may not be unmapped now: one place that every call asks which gives memory back or ends registrations.
//
// A segment that another process has imported will have a reason of its own here. Any thread.
#ifndef COMMPOOL_SRC_POOL_SEGMENTS_SEGMENT_PINS_H_
#define COMMPOOL_SRC_POOL_SEGMENTS_SEGMENT_PINS_H_

#include "commpool/status.h"
#include "src/engine/types.h"
#include "src/pool/captures/graph_captures.h"
#include "src/registration/registration_set.h"

namespace commpool::internal {

class SegmentPins {
 public:
  enum class Reason {
    kNone,
    kRegistered,  // a communicator knows it: NCCL may still use it
  };

  SegmentPins(const RegistrationSet& registrations, const GraphCaptures& captures)
      : registrations_(registrations), captures_(captures) {}

  Reason ReasonFor(engine::SegmentIndex segment) const {
    return registrations_.IsRegistered(segment) ? Reason::kRegistered : Reason::kNone;
  }
  bool IsPinned(engine::SegmentIndex segment) const { return ReasonFor(segment) != Reason::kNone; }

  // OK where registrations may end. A captured collective keeps NCCL's handles of registered memory until its graph is
  // gone: kFailedPrecondition while one lives.
  Status CheckMayDeregister() const { return registrations_.empty() ? Status() : captures_.CheckNoneLive(); }

 private:
  const RegistrationSet& registrations_;
  const GraphCaptures& captures_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SEGMENTS_SEGMENT_PINS_H_
