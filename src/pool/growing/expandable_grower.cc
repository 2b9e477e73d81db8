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
      const bool waits = !parts_.basis.device->capturing();
      const engine::Reuse reuse = waits ? engine::Reuse::kAnyStream : engine::Reuse::kSameStream;
      MutexLock lock(parts_.blocks.mutex());
      Result<engine::Grow> needed = engine_->GrowthFor(bytes, stream, reuse, part);
      if (!needed.ok()) return parts_.basis.Named(needed.status());
      if (needed->bytes == 0) return OptionalPlan();  // another thread's growth made room
      Result<engine::Expansion> plan = engine_->Plan(bytes, stream, donors, part, reuse);
      if (!plan.ok()) return plan.status();
      // What merges with memory that a captured stream used serves nobody before the capture's end.
      if (part == engine::kCommonPart && parts_.basis.device->capturing()) plan->claimant.stream = stream;
      if (!plan->needs_territory) return OptionalPlan(std::move(*plan));
      growth = *needed;
    }
    Status status = territories_.Add(growth.space, growth.bytes);
    if (!status.ok()) return status;
  }
}

bool ExpandableGrower::GrowsCheaply(uint64_t requested, uint64_t made) {
  if (!parts_.segments.FitsOwnLimit(made) || !parts_.segments.FitsPlacementLimit(made)) return false;
  MutexLock lock(parts_.blocks.mutex());
  return engine_->GrowsCheaply(requested, made);
}

Result<ExpandableGrower::OptionalPlan> ExpandableGrower::PlanFor(uint64_t bytes, StreamKey stream, Effort effort) {
  if (effort == Effort::kPressure) {
    Status status = parts_.blocks.WaitForDevice();
    if (!status.ok()) return status;
    return Plan(bytes, stream, engine::Donors::kAll);
  }
  Result<OptionalPlan> plan = Plan(bytes, stream, engine::Donors::kNone);
  if (!plan.ok() || !plan->has_value()) return plan;
  const bool eager = parts_.basis.configuration.moves == Moves::kEager;
  const bool collects = parts_.segments.BeyondCollection((*plan)->made_bytes()) > 0;
  if (!collects && (!eager || GrowsCheaply(bytes, (*plan)->made_bytes()))) return plan;
  plan = Plan(bytes, stream, engine::Donors::kWhole);
  if (!plan.ok() || !plan->has_value()) return plan;
  if ((*plan)->busy_bytes == 0 || (*plan)->made_bytes() == 0) return plan;
  bool waits = !parts_.basis.device->capturing();
  if (waits) {
    MutexLock lock(parts_.blocks.mutex());
    waits = engine_->GrowsTooFar(bytes, (*plan)->made_bytes());
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
  Result<Room> room = made == 0 ? Result<Room>(Room()) : parts_.segments.TakeRoom(made);
  if (!room.ok()) return room.status();
  MutexLock lock(parts_.blocks.mutex());
  // What the plan wants may have been served to another thread meanwhile.
  if (!engine_->CanClaim(**plan)) return Status(StatusCode::kFailedPrecondition, "the plan is stale");
  engine_->Claim(**plan);
  return std::optional<Claimed>(Claimed{std::move(**plan), std::move(*room)});
}

Status ExpandableGrower::Grow(uint64_t bytes, StreamKey stream, Effort effort, engine::Part part) {
  MutexLock growth(parts_.segments.growth());
  const Status awake = parts_.CheckAwake();  // since the request was looked at
  if (!awake.ok()) return awake;
  for (;;) {
    Result<std::optional<Claimed>> claimed = PlanAndClaim(bytes, stream, effort, part);
    if (claimed.status().code() == StatusCode::kFailedPrecondition && parts_.CheckOpen().ok()) continue;
    if (!claimed.ok()) return claimed.status();
    if (!claimed->has_value()) return Status();
    const ContextGuard current = parts_.basis.MakeCurrent();
    PageGrowth pages(parts_, engine_, territories_, (*claimed)->plan, std::move((*claimed)->room));
    return internal::Grow(pages);
  }
}

Status ExpandableGrower::ReleasePages(const ReservedVector<engine::SegmentRange>& pages) {
  const ContextGuard current = parts_.basis.MakeCurrent();
  for (size_t index = 0; index < pages.size(); ++index) {
    Result<PhysicalMemory> memory = territories_.Of(pages[index].address).Unmap(pages[index].address);
    Status status = memory.ok() ? memory->Release() : memory.status();
    MutexLock lock(parts_.blocks.mutex());
    if (memory.ok()) engine_->RemovePage(pages[index]);
    if (status.ok()) {
      parts_.segments.ReturnRoom(pages[index].bytes);
      continue;
    }
    // What could not be unmapped serves on, where it is.
    for (size_t rest = memory.ok() ? index + 1 : index; rest < pages.size(); ++rest) engine_->UnclaimPage(pages[rest]);
    return status;
  }
  return Status();
}

Result<uint64_t> ExpandableGrower::Release(uint64_t keep_bytes, Wait wait) {
  const std::shared_ptr<BlockOwner> alive =
      parts_.basis.owner.lock();  // its last territory may hold the last reference
  MutexLock growth(parts_.segments.growth());
  Status status = wait == Wait::kYes ? parts_.blocks.WaitForDevice() : progress_.Poll();
  if (!status.ok()) return status;
  ReservedVector<engine::SegmentRange> pages;
  {
    MutexLock lock(parts_.blocks.mutex());
    const uint64_t reserved = engine_->counters().reserved_bytes.current;
    if (reserved > keep_bytes) pages = engine_->ClaimIdlePages(reserved - keep_bytes);
  }
  uint64_t released = 0;
  for (const engine::SegmentRange& page : pages) released += page.bytes;
  status = ReleasePages(pages);
  if (status.ok() && !parts_.life.open()) status = territories_.ReleaseEmpty();
  if (!status.ok()) return status;
  return released;
}

}  // namespace commpool::internal
