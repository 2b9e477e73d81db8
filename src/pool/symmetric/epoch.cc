#include "src/pool/symmetric/epoch.h"

#include <memory>
#include <random>
#include <string>
#include <utility>

#include "src/base/host_patience.h"
#include "src/base/try.h"

namespace commpool::internal {

namespace {

uint64_t RandomNumber() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random() | 1;
}

// Rank 0's proposal is the pool's home number.
ClaimFindings FindHomeNumber(const std::vector<DomainClaim>& claims) {
  return {.findings = {.home_id = claims.front().number.value_or(0)}};
}

}  // namespace

Status Epoch::Renumber() {
  MutexLock growth(segments_.growth());
  MutexLock lock(blocks_.mutex());
  const std::vector<SegmentToRegister> kept = segments_.List();
  for (const SegmentToRegister& segment : kept) {
    if (!engine().IsIdle(segment.index)) {
      return Status(StatusCode::kFailedPrecondition, "another thread allocated during a collective call");
    }
  }
  std::vector<std::unique_ptr<Segment>> segments;
  for (const SegmentToRegister& segment : kept) {
    engine().RemoveSegment(segment.index);
    segments.push_back(segments_.Take(segment.index));
  }
  engine().BeginEpoch();
  for (std::unique_ptr<Segment>& segment : segments) {
    const engine::SegmentIndex index = engine().AddSegment({segment->address(), segment->bytes()});
    segments_.Put(index, std::move(segment));
  }
  return Status();
}

Status Epoch::MakeMissing(const std::vector<uint64_t>& all) {
  Status status = Renumber();
  if (!status.ok()) return status;
  const ContextGuard current = basis_.MakeCurrent();
  MutexLock growth(segments_.growth());
  for (size_t place = segments_.count(); place < all.size(); ++place) {
    Room room = COMMPOOL_TRY(segments_.TakeRoom(all[place]));
    NewSegment made = COMMPOOL_TRY(segments_.Make(all[place], std::move(room)));
    made_.push_back(std::move(made));
  }
  return Status();
}

std::vector<SegmentToRegister> Epoch::AllSegments() const {
  std::vector<SegmentToRegister> segments = segments_.List();
  for (const NewSegment& made : made_) {
    segments.push_back({static_cast<uint32_t>(segments.size()), made->address(), made->bytes()});
  }
  return segments;
}

void Epoch::Adopt() {
  {
    MutexLock growth(segments_.growth());
    for (NewSegment& made : made_) segments_.Adopt(std::move(made));
  }
  {
    MutexLock lock(blocks_.mutex());
    engine().NoteCollective(engine::SequenceCall::kRegister, 0);
  }
  collective_.StartPublishing();
}

Result<uint64_t> Epoch::Begin(const Status& readiness) {
  const Agreed agreed = COMMPOOL_TRY(collective_.Agree({.call = CollectiveCall::kCreate,
                                                        .readiness = readiness,
                                                        .claim = {.number = RandomNumber()},
                                                        .judge = FindHomeNumber}));
  if (!agreed.claims.ok()) return basis_.Named(agreed.claims);
  COMMPOOL_TRY(agreed.segments.empty() ? BeginEmpty() : MakeAndRegister(agreed.segments));
  Adopt();
  return agreed.findings.home_id;
}

// No rank has memory: nothing is made and NCCL is not called, so no rank can fail.
Status Epoch::BeginEmpty() {
  Status status = Renumber();
  return status.ok() ? registrar_.AddHome({}) : status;
}

Status Epoch::MakeAndRegister(const std::vector<uint64_t>& all) {
  const std::string name = Insist([&] { return "making the pool's " + std::to_string(all.size()) + " segments"; });
  COMMPOOL_TRY(collective_.Run({.name = name.c_str(), .act = [&] { return MakeMissing(all); }}));
  return collective_.Run({.name = "registering with home",
                          .act =
                              [&] {
                                segments_.collective().AssertHeld();
                                return registrar_.AddHome(Insist([&] { return AllSegments(); }));
                              },
                          .undo =
                              [&](const Status& mine) {
                                segments_.collective().AssertHeld();
                                const Status undone = mine.ok() ? segments_.registrations().RemoveAll() : Status();
                                if (!collective_.AllUndone(undone)) segments_.SetAside(std::move(made_));
                              }});
}

}  // namespace commpool::internal
