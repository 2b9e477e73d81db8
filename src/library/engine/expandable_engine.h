// ExpandableEngine: the engine of expandable pools. It is a CachingEngine whose segments are territories: ranges of
// addresses that begin without memory. Pages give them memory, and move to the addresses that need them.
//
// Growth has four steps, so that the pool can call the driver outside its lock: PlanGrowth, Claim, the driver's calls,
// then Complete (or Unclaim where a call failed). Between Claim and Complete the claimed pages and addresses serve
// nobody. The pool's growth lock lets one growth run at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "src/library/engine/caching_engine.h"
#include "src/library/engine/expansion.h"

namespace commpool::internal::engine {

class ExpandableEngine final : public CachingEngine {
 public:
  explicit ExpandableEngine(const EngineOptions& options) : CachingEngine(options) {}

  // Adds addresses for small or for large blocks, without memory.
  SegmentIndex AddTerritory(const SegmentRange& range, Space space) {
    return own_heap().AddSegment(range, space, BlockState::kUnmapped);
  }
  // REQUIRES: it has no page.
  void RemoveTerritory(SegmentIndex index) { own_heap().RemoveSegment(index); }
  bool IsEmptyTerritory(SegmentIndex index) const {
    const Block* const first = heap().segments().at(index)->first;
    return first->next == nullptr && first->state == BlockState::kUnmapped;
  }

  // The segment that Allocate would ask for; 0 bytes where free memory is enough. With kAnyStream it counts memory that
  // other streams used too, once the pool holds more than its slack (Slack::wait_share): then an allocation with
  // kAnyStream finds it, and waits on the device.
  Result<Grow> GrowthFor(uint64_t bytes, StreamKey stream, Reuse reuse, Part part = kCommonPart);

  // The cheapest plan. While the pool stays within its slack it makes new pages. Beyond, pages move, after a wait for
  // their streams where that saves enough memory.
  Result<GrowthPlan> PlanGrowth(GrowthRequest& request) override;

  // Whether new pages (`made` bytes of them) are better for the request than pages that move.
  bool GrowsCheaply(uint64_t requested, uint64_t made);
  // Whether the growth is worth a host wait, after which other pages could move.
  bool GrowsTooFar(uint64_t requested, uint64_t made) const {
    return !IsWithin(options().slack.host_wait_share, requested, made);
  }

  // How to make room for a request that Allocate answered with Grow. With kAnyStream, and where the pool has more than
  // enough, it may also use memory that other streams used.
  Result<Expansion> Plan(uint64_t bytes, StreamKey stream, Donors donors, Part part = kCommonPart,
                         Reuse reuse = Reuse::kSameStream);

  bool Claim(const Expansion& expansion) override;
  // The pages are where the plan wants them: they are free memory of the claimant.
  void Complete(const Expansion& expansion) override;
  // The pages and addresses are as before Claim, because nothing was changed. Moves before `first_move` are lost.
  void Unclaim(const Expansion& expansion, size_t first_move = 0);

  // Claims free pages that nobody uses, to release them: about `bytes` of them, the highest addresses first.
  std::vector<SegmentRange> ClaimIdlePages(uint64_t bytes);
  // A claimed page is gone: it was released, or it is lost to the pool while it moves.
  void RemovePage(const SegmentRange& page);
  void UnclaimPage(const SegmentRange& page) { Convert(page, BlockState::kLeaving, BlockState::kFree); }

  const Pages& pages() const { return pages_; }

 private:
  // Whether the whole page is free memory that nobody uses.
  bool IsIdlePage(const SegmentRange& page) const;
  // Plans with such donors; adds addresses where there are too few.
  Result<GrowthPlan> PlanPages(const GrowthRequest& request, Donors donors);
  // The highest need so far: the most bytes that the program ever had at once, the next request included.
  uint64_t NeededWith(uint64_t requested) const;
  // Whether the pool with `made` new bytes exceeds the highest need by at most one part in `share`, and by what it has
  // earned by moving pages (kMovedShare).
  bool IsWithin(uint64_t share, uint64_t requested, uint64_t made) const;
  // The largest page to make for a request, within the pool's slack and beyond.
  uint64_t PageBytes(const RequestSizes& sizes) const;
  uint64_t SmallPageBytes(const RequestSizes& sizes) const;

  Pages pages_;
  uint64_t moved_bytes_ = 0;  // of all time
  uint64_t highest_needed_ = 0;
  uint64_t total_at_highest_ = 0;  // bytes requested of all time, when the need was last raised
};

}  // namespace commpool::internal::engine
