#include "src/pool/growing/expandable_grower.h"

#include <algorithm>
#include <utility>

#include "src/base/bytes.h"
#include "src/pool/growing/page_growth.h"

namespace commpool::internal {

std::unique_ptr<engine::ExpandableEngine> MakeExpandableEngine(const PoolConfiguration& configuration,
                                                               uint64_t granularity) {
  engine::EngineOptions options = GrowingEngineOptions(configuration, granularity);
  // Large blocks towards one end: the other end then has whole pages that can move.
  options.merge = engine::MergePolicy::kCompatible;
  options.choice = engine::Choice::kFirstFit;
  return std::make_unique<engine::ExpandableEngine>(options);
}

Result<ExpandableGrower::OptionalPlan> ExpandableGrower::Plan(uint64_t bytes, StreamKey stream, engine::Donors donors,
                                                              engine::Part part) {
  for (;;) {
    engine::Grow growth;
    {
      // No wait can be recorded for the work of a captured stream, and which those are the engine does not know.
      const bool waits = !basis_.device->capturing();
      const engine::Reuse reuse = waits ? engine::Reuse::kAnyStream : engine::Reuse::kSameStream;
      MutexLock lock(blocks_.mutex());
      Result<engine::Grow> needed = engine().GrowthFor(bytes, stream, reuse, part);
      if (!needed.ok()) return basis_.Named(needed.status());
      if (needed->bytes == 0) return OptionalPlan();  // another thread's growth made room
      Result<engine::Expansion> plan = engine().Plan(bytes, stream, donors, part, reuse);
      if (!plan.ok()) return plan.status();
      // What merges with memory that a captured stream used serves nobody before the capture's end.
      if (part == engine::kCommonPart && basis_.device->capturing()) plan->claimant.stream = stream;
      if (!plan->needs_territory) return OptionalPlan(std::move(*plan));
      growth = *needed;
    }
    Status status = territories_.Add(growth.space, growth.bytes);
    if (!status.ok()) return status;
  }
}

bool ExpandableGrower::GrowsCheaply(uint64_t requested, uint64_t made) {
  if (!segments_.FitsOwnLimit(made) || !segments_.FitsPlacementLimit(made)) return false;
  MutexLock lock(blocks_.mutex());
  return engine().GrowsCheaply(requested, made);
}

Result<ExpandableGrower::OptionalPlan> ExpandableGrower::PlanFor(uint64_t bytes, StreamKey stream, Effort effort) {
  if (effort == Effort::kPressure) {
    Status status = blocks_.WaitForDevice();
    if (!status.ok()) return status;
    return Plan(bytes, stream, engine::Donors::kAll);
  }
  Result<OptionalPlan> plan = Plan(bytes, stream, engine::Donors::kNone);
  if (!plan.ok() || !plan->has_value()) return plan;
  const bool eager = basis_.configuration.moves == Moves::kEager;
  const bool collects = segments_.BeyondCollection((*plan)->made_bytes()) > 0;
  if (!collects && (!eager || GrowsCheaply(bytes, (*plan)->made_bytes()))) return plan;
  plan = Plan(bytes, stream, engine::Donors::kWhole);
  if (!plan.ok() || !plan->has_value()) return plan;
  if ((*plan)->busy_bytes == 0 || (*plan)->made_bytes() == 0) return plan;
  bool waits = !basis_.device->capturing();
  if (waits) {
    MutexLock lock(blocks_.mutex());
    waits = engine().GrowsTooFar(bytes, (*plan)->made_bytes());
  }
  Status status = waits ? progress_.AwaitLong((*plan)->made_bytes()) : progress_.Poll();
  if (!status.ok()) return status;
  return Plan(bytes, stream, engine::Donors::kWhole);
}

Result<std::optional<ExpandableGrower::Claimed>> ExpandableGrower::PlanAndClaim(uint64_t bytes, StreamKey stream,
                                                                                Effort effort, engine::Part part) {
  Result<OptionalPlan> plan =
      part == engine::kCommonPart ? PlanFor(bytes, stream, effort) : Plan(bytes, stream, engine::Donors::kNone, part);
  if (!plan.ok()) return plan.status();
  if (!plan->has_value()) return std::optional<Claimed>();
  const uint64_t made = (*plan)->made_bytes();
  Result<Room> room = made == 0 ? Result<Room>(Room()) : segments_.TakeRoom(made);
  if (!room.ok()) return room.status();
  MutexLock lock(blocks_.mutex());
  // What the plan wants may have been served to another thread meanwhile.
  if (!engine().CanClaim(**plan)) return Status(StatusCode::kFailedPrecondition, "the plan is stale");
  engine().Claim(**plan);
  return std::optional<Claimed>(Claimed{std::move(**plan), std::move(*room)});
}

Status ExpandableGrower::Grow(uint64_t bytes, StreamKey stream, Effort effort, engine::Part part) {
  MutexLock growth(segments_.growth());
  const Status awake = basis_.CheckAwake();  // since the request was looked at
  if (!awake.ok()) return awake;
  for (;;) {
    Result<std::optional<Claimed>> claimed = PlanAndClaim(bytes, stream, effort, part);
    if (claimed.status().code() == StatusCode::kFailedPrecondition && basis_.CheckOpen().ok()) continue;
    if (!claimed.ok()) return claimed.status();
    if (!claimed->has_value()) return Status();
    const ContextGuard current = basis_.MakeCurrent();
    PageGrowth pages(basis_, blocks_, segments_, territories_, (*claimed)->plan, std::move((*claimed)->room));
    return internal::Grow(pages);
  }
}

Status ExpandableGrower::ReleasePages(const ReservedVector<engine::SegmentRange>& pages) {
  const ContextGuard current = basis_.MakeCurrent();
  for (size_t index = 0; index < pages.size(); ++index) {
    Result<ReservedVector<PhysicalMemory>> row =
        territories_.Of(pages[index].address).UnmapRow(pages[index].address, pages[index].bytes);
    Status status = row.ok() ? row->front().Release() : row.status();
    MutexLock lock(blocks_.mutex());
    if (row.ok()) engine().RemovePage(pages[index]);
    if (status.ok()) {
      segments_.ReturnRoom(pages[index].bytes);
      continue;
    }
    // What could not be unmapped serves on, where it is.
    for (size_t rest = row.ok() ? index + 1 : index; rest < pages.size(); ++rest) engine().UnclaimPage(pages[rest]);
    return status;
  }
  return Status();
}

Result<uint64_t> ExpandableGrower::Release(uint64_t keep_bytes, Wait wait) {
  const std::shared_ptr<BlockOwner> alive = basis_.owner.lock();  // its last territory may hold the last reference
  MutexLock growth(segments_.growth());
  Status status = wait == Wait::kYes ? blocks_.WaitForDevice() : progress_.Poll();
  if (!status.ok()) return status;
  ReservedVector<engine::SegmentRange> pages;
  {
    MutexLock lock(blocks_.mutex());
    const uint64_t reserved = engine().counters().reserved_bytes.current;
    if (reserved > keep_bytes) pages = engine().ClaimIdlePages(reserved - keep_bytes);
  }
  uint64_t released = 0;
  for (const engine::SegmentRange& page : pages) released += page.bytes;
  status = ReleasePages(pages);
  if (status.ok() && !basis_.life.open()) status = territories_.ReleaseEmpty();
  if (!status.ok()) return status;
  return released;
}

}  // namespace commpool::internal
