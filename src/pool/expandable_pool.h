// An expandable pool: free pages move to where they are needed, so that a request fits whenever free memory suffices.
//
// Growth plans in the engine under the pool's lock, then makes, unmaps and maps pages outside it, and only then lets
// the engine serve from them. A page moves when the work that used it is over, as an event behind it says; where it is
// not, growing is preferred to waiting, unless there is no room to grow.
#ifndef COMMPOOL_SRC_POOL_EXPANDABLE_POOL_H_
#define COMMPOOL_SRC_POOL_EXPANDABLE_POOL_H_

#include <map>
#include <vector>

#include "src/backing/territory.h"
#include "src/pool/growing_pool.h"

namespace commpool::internal {

class ExpandablePool final : public GrowingPool<engine::ExpandableEngine> {
 public:
  explicit ExpandablePool(PoolParts parts);

  Status Close() override;

  // Pages that move cannot be registered: kNotSupported.
  Status RegisterWith(ncclComm_t communicator) override;
  Result<uint64_t> RegisterPending() override { return uint64_t{0}; }
  Status Deregister(ncclComm_t) override { return Status(); }
  Status AbandonCommunicator(ncclComm_t) override { return Status(); }

 private:
  ExpandablePool(PoolParts& parts, uint64_t territory_bytes);

  Status Grow(uint64_t bytes, StreamKey stream, Effort effort) override;
  bool MovesPages() const override { return true; }
  Result<uint64_t> GiveBack(uint64_t keep_bytes, Wait wait) override;

  // The plan that fits into what may still be reserved, claimed in the engine; null where free memory suffices by now.
  Result<std::optional<engine::Expansion>> PlanAndClaim(uint64_t bytes, StreamKey stream, Effort effort)
      COMMPOOL_REQUIRES(growth_);
  Result<std::optional<engine::Expansion>> Plan(uint64_t bytes, StreamKey stream, engine::Donors donors)
      COMMPOOL_REQUIRES(growth_);
  // The plan that costs least: new pages while the pool stays within its slack, else pages that move.
  Result<std::optional<engine::Expansion>> PlanFor(uint64_t bytes, StreamKey stream, Effort effort)
      COMMPOOL_REQUIRES(growth_);
  // Whether making so many bytes for the request would leave the pool within its slack.
  bool GrowsCheaply(uint64_t requested, uint64_t made) COMMPOOL_REQUIRES(growth_);
  Status AddTerritory(engine::Space space, uint64_t least_bytes) COMMPOOL_REQUIRES(growth_);
  // The plan's driver calls. Where one fails the engine is told what is lost, and the rest is as before.
  Status Execute(const engine::Expansion& plan) COMMPOOL_REQUIRES(growth_);
  Result<std::vector<PhysicalMemory>> MakePages(const engine::Expansion& plan);
  Status MovePages(const engine::Expansion& plan, std::vector<PhysicalMemory> made) COMMPOOL_REQUIRES(growth_);
  void Fail(const engine::Expansion& plan, size_t moves_begun) COMMPOOL_REQUIRES(growth_);
  Territory& TerritoryOf(CUdeviceptr address) COMMPOOL_REQUIRES(growth_);
  Status GiveBackPages(const std::vector<engine::SegmentRange>& pages) COMMPOOL_REQUIRES(growth_);
  Status GiveBackTerritories() COMMPOOL_REQUIRES(growth_);

  const uint64_t territory_bytes_;
  uint64_t highest_needed_ COMMPOOL_GUARDED_BY(growth_) = 0;
  uint64_t total_at_highest_ COMMPOOL_GUARDED_BY(growth_) = 0;  // bytes requested ever, when more was last needed
  std::map<CUdeviceptr, engine::SegmentIndex> territories_ COMMPOOL_GUARDED_BY(growth_);  // by first address
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_EXPANDABLE_POOL_H_
