// Grows an expandable pool by pages, which move to where they are needed. So a request fits whenever there is enough
// free memory.
//
// A page moves once an event says that the work on it is over. Before that the pool grows instead, if that takes it
// little beyond what the program needs; otherwise it waits a while.
#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "src/library/backing/territory.h"
#include "src/library/base/bytes.h"
#include "src/library/base/check.h"
#include "src/library/base/log.h"
#include "src/library/base/try.h"
#include "src/library/engine/expandable_engine.h"
#include "src/library/pool/growing/growing_mode.h"

namespace commpool::internal {

namespace {

// All expandable pools of a process share 32 TiB, a quarter of its addresses. Each territory takes a part of what is
// left, but enough to be useful: a program may have thousands of pools, and other libraries reserve addresses too.
constexpr uint64_t kSharedBytes = 32 * 1024 * kGiB;
constexpr uint64_t kShare = 64;
constexpr uint64_t kLeastBytes = 8 * kGiB;

// Addresses cost nothing: reserve twice the device's memory, so that pages find room in one piece. Asked once for each
// pool, as its grower is made.
uint64_t UsualBytes(const PoolBasis& basis, uint64_t granularity) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  const ContextGuard current = basis.MakeCurrent();
  const bool known = basis.driver.cuda.cuMemGetInfo(&free_bytes, &total_bytes) == CUDA_SUCCESS;
  return RoundUp(2 * std::max<uint64_t>(known ? total_bytes : 0, 64 * kGiB), granularity);
}

// It owns the list of territories. Pages belong to their territory; on their way from one address to another they
// belong to the growth.
class ExpandableGrower final : public Grower {
 public:
  using Grower::Grower;

  Result<uint64_t> ReleaseHeld(uint64_t keep_bytes, Wait wait) override COMMPOOL_REQUIRES(kGrowthLock);

 private:
  // One step: makes a page, unmaps a row of pages, maps one, opens what was mapped, or adds addresses.
  Status Do(const engine::GrowthStep& step, Growth& growth) override COMMPOOL_REQUIRES(kGrowthLock);
  // It does not try to map pages back that have lost their address: a driver that cannot map what it has just unmapped
  // is broken, or soon will be.
  void Undo(Growth& growth) override COMMPOOL_REQUIRES(kGrowthLock);
  // REQUIRES: the engine has claimed the pages, so that no request gets them. Claims that it could not use go back to
  // the engine.
  Status ReleasePages(const std::vector<engine::SegmentRange>& pages) COMMPOOL_REQUIRES(kGrowthLock);

  // Reserves addresses for at least so many bytes of blocks of a space, and lets the engine use them. Of the usual size
  // of a territory, or fewer where the process's pools have many addresses already.
  Status AddAddresses(engine::Space space, uint64_t least_bytes) COMMPOOL_REQUIRES(kGrowthLock);
  // The territory that holds a page. It must exist: the engine names only pages of territories that it was given.
  Territory& TerritoryOf(CUdeviceptr page) COMMPOOL_REQUIRES(kGrowthLock);
  // Called where the pool is not open.
  Status ReleaseEmptyTerritories() COMMPOOL_REQUIRES(kGrowthLock);

  auto& engine() COMMPOOL_REQUIRES(blocks_.mutex()) { return blocks_.engine<engine::ExpandableEngine>(); }

  const uint64_t usual_bytes_ = UsualBytes(basis_, segments_.granularity);  // of a territory
  // By first address; SegmentBook owns them, by number.
  std::map<CUdeviceptr, engine::SegmentIndex> territories_ COMMPOOL_GUARDED_BY(kGrowthLock);
};

// The engine has claimed pages and addresses before, so no other thread uses them. Pages between two addresses wait in
// `growth.in_hand`.
Status ExpandableGrower::Do(const engine::GrowthStep& step, Growth& growth) {
  using Kind = engine::GrowthStep::Kind;
  // No memory yet: pages come to these addresses in a later plan.
  if (step.kind == Kind::kAddAddresses) return AddAddresses(step.space, step.range.bytes);
  if (step.kind == Kind::kMakePage) {
    PhysicalMemory memory = COMMPOOL_TRY(basis_.Named(segments_.backing->MakePage(step.range.bytes)));
    growth.in_hand.push_back(std::move(memory));
    return Status();
  }
  Territory& territory = TerritoryOf(step.range.address);
  if (step.kind == Kind::kOpen) return territory.Open(step.range.address, step.range.bytes);
  if (step.kind == Kind::kMap) {
    // The plan maps pages in the order in which it made or unmapped them.
    PhysicalMemory page = std::move(growth.in_hand.front());
    growth.in_hand.pop_front();
    return territory.Map(std::move(page), step.range.address);
  }
  // One call unmaps a row of pages. Where it fails they stay in use where they are.
  std::vector<PhysicalMemory> row = COMMPOOL_TRY(territory.UnmapRow(step.range.address, step.range.bytes));
  growth.unmapped += step.pages;
  for (PhysicalMemory& page : row) growth.in_hand.push_back(std::move(page));
  return Status();
}

// New pages go back to the driver. Pages that were to move and still have their old address stay there. Those without
// an address are lost to the pool: the engine forgets them, and their room goes back. Takes the pool's lock only at the
// end: dropping pages calls the driver.
void ExpandableGrower::Undo(Growth& growth) {
  growth.in_hand.clear();
  const engine::Expansion& pages = growth.plan.pages;
  // A page may have been mapped to each of these places. One that cannot be dropped stays until a growth needs its
  // place; meanwhile no account counts it.
  for (const engine::SegmentRange& range : pages.arriving) {
    const Status dropped = TerritoryOf(range.address).Drop(range.address, range.bytes);
    if (!dropped.ok()) Log(LogLevel::kWarning, basis_.title + " keeps pages that it cannot use: " + dropped.message());
  }
  uint64_t lost = 0;
  MutexLock lock(blocks_.mutex());
  for (size_t index = 0; index < growth.unmapped; ++index) {
    const engine::PageMove& move = pages.moves[index];
    lost += move.bytes;
    engine().RemovePage({move.from, move.bytes});
    basis_.record.Tell(recording::SegmentGone{.address = move.from, .bytes = move.bytes});
  }
  engine().Unclaim(pages, growth.unmapped);
  segments_.room.Return(lost);  // the new pages' room goes back with the growth
}

// One page at a time: unmap, release, tell the engine. So a failure leaves every page either in the books or gone. The
// engine has given out idle pages alone, so no stream uses them.
Status ExpandableGrower::ReleasePages(const std::vector<engine::SegmentRange>& pages) {
  const ContextGuard current = basis_.MakeCurrent();
  for (size_t index = 0; index < pages.size(); ++index) {
    Result<std::vector<PhysicalMemory>> row =
        TerritoryOf(pages[index].address).UnmapRow(pages[index].address, pages[index].bytes);
    Status status = row.ok() ? row->front().Release() : row.status();
    MutexLock lock(blocks_.mutex());
    // Unmapped pages leave the books even if the release failed: their addresses are free either way.
    if (row.ok()) engine().RemovePage(pages[index]);
    if (row.ok())
      basis_.record.Tell(recording::SegmentGone{.address = pages[index].address, .bytes = pages[index].bytes});
    if (status.ok()) {
      segments_.room.Return(pages[index].bytes);
      continue;
    }
    // Pages that could not be unmapped stay in use where they are.
    for (size_t rest = row.ok() ? index + 1 : index; rest < pages.size(); ++rest) engine().UnclaimPage(pages[rest]);
    return status;
  }
  return Status();
}

// Without a wait it asks streams once; pages of streams that still work stay.
Result<uint64_t> ExpandableGrower::ReleaseHeld(uint64_t keep_bytes, Wait wait) {
  // Idle pages are those whose streams are known to be done: so ask, or wait, first.
  COMMPOOL_TRY(wait == Wait::kYes ? blocks_.WaitForDevice() : Poll());
  std::vector<engine::SegmentRange> pages;
  {
    MutexLock lock(blocks_.mutex());
    const uint64_t reserved = engine().counters().reserved_bytes.current;
    pages = engine().ClaimIdlePages(reserved - std::min(reserved, keep_bytes));
  }
  uint64_t released = 0;
  for (const engine::SegmentRange& page : pages) released += page.bytes;
  COMMPOOL_TRY(ReleasePages(pages));
  // An open pool keeps its addresses: they cost nothing, and serve the next growth.
  if (!basis_.life.open()) COMMPOOL_TRY(ReleaseEmptyTerritories());
  return released;
}

// Territories do not overlap, so the last one that begins at or before the page holds it.
Territory& ExpandableGrower::TerritoryOf(CUdeviceptr page) {
  const auto after = territories_.upper_bound(page);
  COMMPOOL_CHECK(after != territories_.begin(), "a page lies in no territory");
  return static_cast<Territory&>(segments_.book.Get(std::prev(after)->second));
}

// The engine may use the addresses only once nothing can fail any more. What was taken before a failure goes back by
// itself: the range, and its entry in the table of addresses.
Status ExpandableGrower::AddAddresses(engine::Space space, uint64_t least_bytes) {
  const uint64_t left = kSharedBytes - std::min(kSharedBytes, basis_.runtime.addresses.bytes());
  // A share of what is left, so that the first pools do not take all.
  const uint64_t share = RoundUp(std::max(left / kShare, kLeastBytes), segments_.granularity);
  const uint64_t bytes = std::max(std::min(usual_bytes_, share), least_bytes);
  std::unique_ptr<Territory> territory = COMMPOOL_TRY(Territory::Reserve(*segments_.backing, bytes));
  COMMPOOL_TRY(territory->Grant(segments_.peers.Devices()));
  const engine::SegmentRange range{territory->address(), territory->bytes()};
  AddressTable::Entry entry =
      COMMPOOL_TRY(basis_.runtime.addresses.Add(range.address, range.bytes, basis_.owner.lock()));
  MutexLock lock(blocks_.mutex());
  const engine::SegmentIndex index = engine().AddTerritory(range, space);
  segments_.book.Put(index, std::move(territory));
  territories_.emplace(range.address, index);
  entry.Keep();
  return Status();
}

// The engine forgets a territory before its addresses go, so that no page can come there meanwhile. For a pool that has
// ended: its last territory may be what keeps it alive.
Status ExpandableGrower::ReleaseEmptyTerritories() {
  for (auto territory = territories_.begin(); territory != territories_.end();) {
    const auto [address, index] = *territory++;
    {
      MutexLock lock(blocks_.mutex());
      if (!engine().IsEmptyTerritory(index)) continue;
      engine().RemoveTerritory(index);
    }
    // Out of the table before the addresses go back: the driver may give them to another pool at once.
    std::unique_ptr<Segment> taken = segments_.book.Take(index);
    basis_.runtime.addresses.Remove(address);
    territories_.erase(address);
    COMMPOOL_TRY(segments_.maker.ReleaseOrSetAside({Room(), std::move(taken), AddressTable::Entry()}));
  }
  return Status();
}

}  // namespace

std::unique_ptr<Grower> MakeExpandableGrower(const PoolParts& parts) {
  return std::make_unique<ExpandableGrower>(parts);
}

}  // namespace commpool::internal
