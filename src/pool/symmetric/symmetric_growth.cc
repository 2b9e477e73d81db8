#include "src/pool/symmetric/symmetric_growth.h"

#include <utility>

#include "src/base/bytes.h"

namespace commpool::internal {

Status SymmetricGrowth::Make() {
  MutexLock growth(parts_.segments.growth());
  Result<Room> room = parts_.segments.TakeRoom(bytes_);
  if (!room.ok()) return room.status();
  Result<NewSegment> made = parts_.segments.Make(bytes_, std::move(*room));
  if (!made.ok()) return made.status();
  made_ = std::move(*made);
  return Status();
}

Status SymmetricGrowth::Prepare() {
  {
    MutexLock lock(parts_.blocks.mutex());
    index_ = engine_->SegmentsEver();
  }
  return parts_.registrations.RegisterSegment({index_, made_->address(), made_->bytes()});
}

void SymmetricGrowth::Undo() {
  const Status undone = parts_.registrations.DeregisterSegment(index_);
  // Where one rank could not, a peer may still hold this memory: it stays until the process ends.
  if (!collective_.AgreeOn(undone, "undoing the registration").ok()) made_.Abandon();
}

void SymmetricGrowth::Adopt() {
  MutexLock growth(parts_.segments.growth());
  parts_.segments.Adopt(std::move(made_));
}

Status SymmetricGrowth::Agree(Step step, const Status& mine) {
  const std::string verb = step == Step::kMake ? "making" : "registering";
  return collective_.AgreeOn(mine, verb + " a segment of " + FormatBytes(bytes_));
}

}  // namespace commpool::internal
