#include "src/pool/expandable_pool.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/base/log.h"
#include "src/driver/diagnosis.h"

namespace commpool::internal {

namespace {

engine::ExpandableEngine MakeEngine(const PoolParts& parts) {
  engine::EngineOptions options = parts.engine_options();
  // Large blocks towards one end: the other end then has whole pages that can move.
  options.merge = engine::MergePolicy::kCompatible;
  options.choice = engine::Choice::kFirstFit;
  return engine::ExpandableEngine(options);
}

// A pool may hold this part more than the most that was asked for at once, rather than move pages; more of it where the
// program is steady, whose every step would move them. Found by replaying traces.
constexpr uint64_t kSlackShare = 250;
constexpr uint64_t kSteadySlackShare = 160;
// A program is steady once it has asked for its peak so many times over without a higher one.
constexpr uint64_t kSteadyTimes = 2;

// Addresses cost nothing: room for the device's whole memory twice, so that pages find a place in one piece.
uint64_t TerritoryBytes(const PoolParts& parts) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  ContextGuard guard(parts.driver, parts.device->context());
  const bool known = parts.driver.cuda.cuMemGetInfo(&free_bytes, &total_bytes) == CUDA_SUCCESS;
  return RoundUp(2 * std::max<uint64_t>(known ? total_bytes : 0, 64 * kGiB), parts.granularity());
}

}  // namespace

ExpandablePool::ExpandablePool(PoolParts parts) : ExpandablePool(parts, TerritoryBytes(parts)) {}

ExpandablePool::ExpandablePool(PoolParts& parts, uint64_t territory_bytes)
    : GrowingPool(std::move(parts), MakeEngine(parts), RegistrationKind::kLocal), territory_bytes_(territory_bytes) {}

Status ExpandablePool::RegisterWith(ncclComm_t) {
  return Status(StatusCode::kNotSupported,
                Title() + " is expandable: its pages move, and what NCCL has registered may not. Make a fixed pool");
}

Status ExpandablePool::Close() {
  MutexLock collective(collective_);
  open_ = false;
  if (device_->health().broken()) return device_->health().first_error();
  Status status = WaitForDevice();
  if (!status.ok()) return status;
  TakeBack(shared_.caches->Close(handle(), CacheRegistry::Reopen::kNever));
  CollectGraphs();
  return GiveBack(0, Wait::kYes).status();
}

Territory& ExpandablePool::TerritoryOf(CUdeviceptr address) {
  const auto after = territories_.upper_bound(address);
  COMMPOOL_CHECK(after != territories_.begin(), "a page lies in no territory");
  MutexLock lock(mutex_);
  return static_cast<Territory&>(segments_.Get(std::prev(after)->second));
}

Status ExpandablePool::AddTerritory(engine::Space space, uint64_t least_bytes) {
  const uint64_t bytes = std::max(territory_bytes_, least_bytes);
  Result<std::unique_ptr<Territory>> territory = Territory::Reserve(segments_.backing(), bytes);
  if (!territory.ok()) return territory.status();
  for (const int peer : peers_) {
    Status status = (*territory)->Grant(peer);
    if (!status.ok()) return status;
  }
  const engine::SegmentRange range{(*territory)->address(), (*territory)->bytes()};
  shared_.table.AddRange(range.address, range.bytes, shared_from_this());
  MutexLock lock(mutex_);
  const engine::SegmentIndex index = engine_.AddTerritory(range, space);
  segments_.Put(index, std::move(*territory));
  territories_.emplace(range.address, index);
  return Status();
}

Result<std::optional<engine::Expansion>> ExpandablePool::Plan(uint64_t bytes, StreamKey stream, engine::Donors donors) {
  for (;;) {
    engine::Grow growth;
    {
      MutexLock lock(mutex_);
      Result<engine::Grow> needed = engine_.GrowthFor(bytes, stream, engine::Reuse::kSameStream);
      if (!needed.ok()) return Status(needed.status().code(), Title() + ": " + needed.status().message());
      if (needed->bytes == 0) return std::optional<engine::Expansion>();  // another thread's growth made room
      Result<engine::Expansion> plan = engine_.Plan(bytes, stream, donors);
      if (!plan.ok()) return plan.status();
      if (!plan->needs_territory) return std::optional<engine::Expansion>(std::move(*plan));
      growth = *needed;
    }
    Status status = AddTerritory(growth.space, growth.bytes);
    if (!status.ok()) return status;
  }
}

bool ExpandablePool::GrowsCheaply(uint64_t requested, uint64_t made) {
  if (!FitsOwnLimit(made) || device_->account().Room() < made) return false;
  MutexLock lock(mutex_);
  const engine::Counters counters = engine_.counters();
  const uint64_t needed = std::max(counters.requested_bytes.peak, counters.requested_bytes.current + requested);
  if (needed > highest_needed_) {
    highest_needed_ = needed;
    total_at_highest_ = counters.requested_bytes.total;
  }
  const bool steady = counters.requested_bytes.total - total_at_highest_ > kSteadyTimes * needed;
  return counters.reserved_bytes.current + made <= needed + needed / (steady ? kSteadySlackShare : kSlackShare);
}

Result<std::optional<engine::Expansion>> ExpandablePool::PlanFor(uint64_t bytes, StreamKey stream, Effort effort) {
  if (effort == Effort::kPressure) {
    Status status = WaitForDevice();
    if (!status.ok()) return status;
    return Plan(bytes, stream, engine::Donors::kAll);
  }
  Result<std::optional<engine::Expansion>> plan = Plan(bytes, stream, engine::Donors::kNone);
  if (!plan.ok() || !plan->has_value()) return plan;
  if (configuration_.moves != Moves::kEager || GrowsCheaply(bytes, (*plan)->made_bytes())) return plan;
  plan = Plan(bytes, stream, engine::Donors::kWhole);
  if (!plan.ok() || !plan->has_value()) return plan;
  if ((*plan)->busy_bytes == 0 || (*plan)->made_bytes() == 0) return plan;
  Status status = PollFor((*plan)->made_bytes());
  if (!status.ok()) return status;
  return Plan(bytes, stream, engine::Donors::kWhole);
}

Result<std::optional<engine::Expansion>> ExpandablePool::PlanAndClaim(uint64_t bytes, StreamKey stream, Effort effort) {
  Result<std::optional<engine::Expansion>> plan = PlanFor(bytes, stream, effort);
  if (!plan.ok() || !plan->has_value()) return plan;
  const uint64_t made = (*plan)->made_bytes();
  Status room = made == 0 ? Status() : TakeRoom(made);
  if (!room.ok()) return Status(room.code(), room.message());
  MutexLock lock(mutex_);
  // What the plan wants may have been served to another thread meanwhile.
  if (!engine_.CanClaim(**plan)) {
    GiveRoomBack(made);
    return Status(StatusCode::kFailedPrecondition, "the plan is stale");
  }
  engine_.Claim(**plan);
  return plan;
}

Status ExpandablePool::Grow(uint64_t bytes, StreamKey stream, Effort effort) {
  MutexLock growth(growth_);
  for (;;) {
    Result<std::optional<engine::Expansion>> plan = PlanAndClaim(bytes, stream, effort);
    if (plan.status().code() == StatusCode::kFailedPrecondition && CheckOpen().ok()) continue;
    if (!plan.ok()) return plan.status();
    if (!plan->has_value()) return Status();
    return Execute(**plan);
  }
}

Result<std::vector<PhysicalMemory>> ExpandablePool::MakePages(const engine::Expansion& plan) {
  std::vector<PhysicalMemory> made;
  for (const engine::SegmentRange& page : plan.made) {
    Result<PhysicalMemory> memory = segments_.backing().pages()->MakePage(page.bytes);
    if (!memory.ok()) return Status(memory.status().code(), Title() + " cannot grow: " + memory.status().message());
    made.push_back(std::move(*memory));
  }
  return made;
}

Status ExpandablePool::Execute(const engine::Expansion& plan) {
  ContextGuard guard(driver_, device_->context());
  // Memory first: it is what runs out, and until it is there nothing has changed.
  Result<std::vector<PhysicalMemory>> made = MakePages(plan);
  if (!made.ok()) {
    {
      MutexLock lock(mutex_);
      engine_.Unclaim(plan);
    }
    GiveRoomBack(plan.made_bytes());
    return made.status();
  }
  for (const engine::SegmentRange& range : plan.arriving) words_.Cover(range);
  Status status = MovePages(plan, std::move(*made));
  if (!status.ok()) return status;
  moved_bytes_.fetch_add(plan.moved_bytes(), std::memory_order_relaxed);
  MutexLock lock(mutex_);
  engine_.Settle(plan);
  return Status();
}

Status ExpandablePool::MovePages(const engine::Expansion& plan, std::vector<PhysicalMemory> made) {
  Status status;
  size_t moved = 0;
  for (; status.ok() && moved < plan.moves.size(); ++moved) {
    const engine::PageMove& move = plan.moves[moved];
    Result<PhysicalMemory> memory = TerritoryOf(move.from).Unmap(move.from);
    status = memory.ok() ? TerritoryOf(move.to).Map(std::move(*memory), move.to) : memory.status();
  }
  for (size_t index = 0; status.ok() && index < made.size(); ++index) {
    status = TerritoryOf(plan.made[index].address).Map(std::move(made[index]), plan.made[index].address);
  }
  for (const engine::SegmentRange& range : plan.arriving) {
    if (status.ok()) status = TerritoryOf(range.address).Open(range.address, range.bytes);
  }
  if (!status.ok()) Fail(plan, moved);
  return status;
}

void ExpandablePool::Fail(const engine::Expansion& plan, size_t moves_begun) {
  // A driver that cannot map what it has just unmapped is lost or will be: what was touched is not used again.
  for (const engine::SegmentRange& range : plan.arriving) {
    const Status dropped = TerritoryOf(range.address).Drop(range.address, range.bytes);
    if (!dropped.ok()) Log(LogLevel::kWarning, Title() + " keeps pages that it cannot use: " + dropped.message());
  }
  uint64_t gone = plan.made_bytes();
  for (size_t index = 0; index < moves_begun; ++index) gone += plan.moves[index].bytes;
  GiveRoomBack(gone);
  MutexLock lock(mutex_);
  for (size_t index = 0; index < moves_begun; ++index) engine_.Lose(plan.moves[index]);
  engine::Expansion rest = plan;
  rest.moves.erase(rest.moves.begin(), rest.moves.begin() + static_cast<long>(moves_begun));
  engine_.Unclaim(rest);
}

Status ExpandablePool::GiveBackPages(const std::vector<engine::SegmentRange>& pages) {
  ContextGuard guard(driver_, device_->context());
  for (size_t index = 0; index < pages.size(); ++index) {
    Result<PhysicalMemory> memory = TerritoryOf(pages[index].address).Unmap(pages[index].address);
    Status status = memory.ok() ? memory->Release() : memory.status();
    MutexLock lock(mutex_);
    if (memory.ok()) engine_.RemovePage(pages[index]);
    if (status.ok()) {
      GiveRoomBack(pages[index].bytes);
      continue;
    }
    // What could not be unmapped serves on, where it is.
    for (size_t rest = memory.ok() ? index + 1 : index; rest < pages.size(); ++rest) engine_.UnclaimPage(pages[rest]);
    return status;
  }
  return Status();
}

Status ExpandablePool::GiveBackTerritories() {
  for (auto territory = territories_.begin(); territory != territories_.end();) {
    std::unique_ptr<Segment> taken;
    {
      MutexLock lock(mutex_);
      if (engine_.IsEmptyTerritory(territory->second)) {
        engine_.RemoveTerritory(territory->second);
        taken = segments_.Take(territory->second);
      }
    }
    if (taken == nullptr) {
      ++territory;
      continue;
    }
    shared_.table.RemoveRange(taken->address());
    territory = territories_.erase(territory);
    Status status = taken->Free();
    if (!status.ok()) return status;
  }
  return Status();
}

Result<uint64_t> ExpandablePool::GiveBack(uint64_t keep_bytes, Wait wait) {
  const std::shared_ptr<ExpandablePool> alive = std::static_pointer_cast<ExpandablePool>(shared_from_this());
  MutexLock growth(growth_);
  Status status = wait == Wait::kYes ? WaitForDevice() : PollStreams();
  if (!status.ok()) return status;
  std::vector<engine::SegmentRange> pages;
  {
    MutexLock lock(mutex_);
    const uint64_t reserved = engine_.counters().reserved_bytes.current;
    if (reserved > keep_bytes) pages = engine_.ClaimIdlePages(reserved - keep_bytes);
  }
  uint64_t released = 0;
  for (const engine::SegmentRange& page : pages) released += page.bytes;
  status = GiveBackPages(pages);
  if (status.ok() && !open_.load(std::memory_order_acquire)) status = GiveBackTerritories();
  if (!status.ok()) return status;
  return released;
}

}  // namespace commpool::internal
