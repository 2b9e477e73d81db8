#include "src/pool/symmetric/symmetric_growth.h"

#include <utility>

#include "src/base/bytes.h"
#include "src/base/host_failure.h"
#include "src/base/host_patience.h"

namespace commpool::internal {

Status SymmetricGrowth::Make() {
  Status before = collective_.channel().FailureBefore();
  if (!before.ok()) return before;
  MutexLock growth(segments_.growth());
  Result<Room> room = segments_.TakeRoom(bytes_);
  if (!room.ok()) return room.status();
  Result<NewSegment> made = segments_.Make(bytes_, std::move(*room));
  if (!made.ok()) return made.status();
  made_.push_back(std::move(*made));
  return Status();
}

Status SymmetricGrowth::Prepare() {
  {
    MutexLock lock(blocks_.mutex());
    index_ = blocks_.engine<engine::SymmetricEngine>().SegmentsEver();
  }
  Status before = collective_.channel().FailureBefore();
  if (!before.ok()) return before;
  return segments_.registrations().RegisterSegment({index_, made_.front()->address(), made_.front()->bytes()});
}

void SymmetricGrowth::Undo() {
  const Status undone = Attempt([&] { return segments_.registrations().DeregisterSegment(index_); });
  // Where one rank could not, or is lost, a peer or NCCL may still hold this memory.
  if (collective_.AgreeOn(undone, "undoing the registration").ok()) return;
  segments_.SetAside(std::move(made_));
}

void SymmetricGrowth::Adopt() {
  MutexLock growth(segments_.growth());
  segments_.Adopt(std::move(made_.front()));
}

Status SymmetricGrowth::Agree(Step step, const Status& mine) {
  const std::string name = Insist([&] {
    return std::string(step == Step::kMake ? "making" : "registering") + " a segment of " + FormatBytes(bytes_);
  });
  return collective_.AgreeOn(mine, name.c_str());
}

}  // namespace commpool::internal
