// The engine of expandable pools: a CachingEngine whose memory is pages among the addresses of territories, which move
// to where they are needed.
//
// Growth has four steps, so that the pool may call the driver outside its lock: PlanGrowth, Claim, the calls, then
// Settle (or Unclaim where one failed). Claimed pages and addresses serve nobody. One growth at a time: the pool's
// growth lock.
#ifndef COMMPOOL_SRC_ENGINE_EXPANDABLE_ENGINE_H_
#define COMMPOOL_SRC_ENGINE_EXPANDABLE_ENGINE_H_

#include <cstdint>
#include <vector>

#include "src/base/host_reserve.h"
#include "src/engine/caching_engine.h"
#include "src/engine/expansion.h"

namespace commpool::internal::engine {

class ExpandableEngine final : public CachingEngine {
 public:
  explicit ExpandableEngine(const EngineOptions& options) : CachingEngine(options) {}

  // Addresses for small or for large blocks. No memory yet.
  SegmentIndex AddTerritory(const SegmentRange& range, Space space);
  // REQUIRES: no page lies in it.
  void RemoveTerritory(SegmentIndex index) { heap().RemoveSegment(index); }
  bool IsEmptyTerritory(SegmentIndex index) const;

  // The segment that Allocate would ask for; 0 bytes where free memory suffices. With kAnyStream also where memory that
  // other streams used does and the pool has more than enough: then kAnyStream serves, with waits on the device.
  Result<Grow> GrowthFor(uint64_t bytes, StreamKey stream, Reuse reuse, Part part = kCommonPart);

  // The plan that costs least: new pages while the pool stays within its slack, else pages that move, after a wait
  // where the excess is worth one.
  Result<GrowthPlan> PlanGrowth(GrowthRequest& request) override;
  bool Claim(const GrowthPlan& plan) override;
  void Settle(const GrowthPlan& plan) override { Settle(plan.pages); }

  // Whether making so many bytes for the request is better than moving pages.
  bool GrowsCheaply(uint64_t requested, uint64_t made);
  // Whether it would be worth a wait of the host, after which other pages could move.
  bool GrowsTooFar(uint64_t requested, uint64_t made) const {
    return !IsWithin(options().slack.host_wait_share, requested, made);
  }

  // How to make room for a request that Allocate answered with Grow. With kAnyStream, and where the pool has more than
  // enough, around memory that other streams used.
  Result<Expansion> Plan(uint64_t bytes, StreamKey stream, Donors donors, Part part = kCommonPart,
                         Reuse reuse = Reuse::kSameStream);

  // Whether nothing that the plan counts on was served to somebody else since.
  bool CanClaim(const Expansion& expansion);
  void Claim(const Expansion& expansion);
  // The pages are where the plan wants them: free memory of its claimant's.
  void Settle(const Expansion& expansion);
  // Nothing was changed: pages and addresses are as before Claim. Moves before `first_move` are lost ones.
  void Unclaim(const Expansion& expansion, size_t first_move = 0);
  // A page that was claimed is lost to the pool: its old addresses, and those that waited for it, have no memory.
  void Lose(const PageMove& move);

  // Free pages that nobody uses, until about `bytes` are together, the highest addresses first: claimed, to be given
  // back.
  ReservedVector<SegmentRange> ClaimIdlePages(uint64_t bytes);
  void RemovePage(const SegmentRange& page);
  void UnclaimPage(const SegmentRange& page);

  const Pages& pages() const { return pages_; }
  void CheckInvariants() const override;

 private:
  // With such donors; addresses to add where it lacks some.
  Result<GrowthPlan> PlanPages(const GrowthRequest& request, Donors donors);
  // The most that was ever asked for at once, with a request that is about to come.
  uint64_t NeededWith(uint64_t requested) const;
  // Whether the pool, with what is made for the request, exceeds what it needs by no more than this part of it, and
  // what it has earned by moving pages.
  bool IsWithin(uint64_t share, uint64_t requested, uint64_t made) const;
  // The largest page to make for a request: while the pool is within its slack, and beyond.
  uint64_t PageBytes(const RequestSizes& sizes) const;
  uint64_t SmallPageBytes(const RequestSizes& sizes) const;

  Pages pages_;
  uint64_t moved_bytes_ = 0;  // ever
  uint64_t highest_needed_ = 0;
  uint64_t total_at_highest_ = 0;  // bytes requested ever, when more was last needed
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_ENGINE_EXPANDABLE_ENGINE_H_
