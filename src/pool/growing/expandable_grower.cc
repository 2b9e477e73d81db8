#include "src/pool/growing/expandable_grower.h"

#include <utility>

#include "src/base/log.h"
#include "src/base/try.h"

namespace commpool::internal {

Status ExpandableGrower::Do(const engine::GrowthStep& step, Growth& growth) {
  using Kind = engine::GrowthStep::Kind;
  if (step.kind == Kind::kAddAddresses) return territories_.Add(step.space, step.range.bytes);
  if (step.kind == Kind::kMakePage) {
    Result<PhysicalMemory> memory = segments_.backing().MakePage(step.range.bytes);
    if (!memory.ok()) return basis_.Named(memory.status());
    growth.in_hand.push_back(std::move(*memory));
    return Status();
  }
  Territory& territory = territories_.Of(step.range.address);
  if (step.kind == Kind::kOpen) return territory.Open(step.range.address, step.range.bytes);
  if (step.kind == Kind::kMap) {
    PhysicalMemory page = std::move(growth.in_hand.front());
    growth.in_hand.pop_front();
    return territory.Map(std::move(page), step.range.address);
  }
  // One call unmaps a row of pages; where it fails they serve on where they are.
  ReservedVector<PhysicalMemory> row = COMMPOOL_TRY(territory.UnmapRow(step.range.address, step.range.bytes));
  growth.unmapped += step.pages;
  for (PhysicalMemory& page : row) growth.in_hand.push_back(std::move(page));
  return Status();
}

void ExpandableGrower::Undo(Growth& growth) {
  growth.in_hand.clear();
  const engine::Expansion& pages = growth.plan.pages;
  for (const engine::SegmentRange& range : pages.arriving) {
    const Status dropped = territories_.Of(range.address).Drop(range.address, range.bytes);
    if (!dropped.ok()) {
      Log(LogLevel::kWarning, basis_.title + " keeps pages that it cannot use: " + dropped.message());
    }
  }
  uint64_t lost = 0;
  MutexLock lock(blocks_.mutex());
  for (size_t index = 0; index < growth.unmapped; ++index) {
    lost += pages.moves[index].bytes;
    engine().Lose(pages.moves[index]);
  }
  engine().Unclaim(pages, growth.unmapped);
  segments_.ReturnRoom(lost);  // the new pages' room goes back with the growth
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
  COMMPOOL_TRY(wait == Wait::kYes ? blocks_.WaitForDevice() : progress_.Poll());
  ReservedVector<engine::SegmentRange> pages;
  {
    MutexLock lock(blocks_.mutex());
    const uint64_t reserved = engine().counters().reserved_bytes.current;
    if (reserved > keep_bytes) pages = engine().ClaimIdlePages(reserved - keep_bytes);
  }
  uint64_t released = 0;
  for (const engine::SegmentRange& page : pages) released += page.bytes;
  Status status = ReleasePages(pages);
  if (status.ok() && !basis_.life.open()) status = territories_.ReleaseEmpty();
  if (!status.ok()) return status;
  return released;
}

}  // namespace commpool::internal
