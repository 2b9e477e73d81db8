#include "src/pool/growing/fixed_grower.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "src/base/bytes.h"
#include "src/pool/segments/growth.h"

namespace commpool::internal {

namespace {

// One more segment.
class SegmentGrowth final : public Growth {
 public:
  // REQUIRES: the growth lock, as long as it lives.
  SegmentGrowth(PoolParts& parts, const engine::Grow& grow, std::optional<StreamKey> stream)
      : parts_(parts), grow_(grow), stream_(stream) {}

  Status Make() override COMMPOOL_UNCHECKED {
    Result<Room> room = parts_.segments.TakeRoom(grow_.bytes);
    if (!room.ok()) return room.status();
    const ContextGuard current = parts_.basis.MakeCurrent();
    Result<NewSegment> made = parts_.segments.Make(grow_.bytes, std::move(*room), stream_);
    if (!made.ok()) return parts_.basis.Named(made.status());
    made_ = std::move(*made);
    return Status();
  }

  void Adopt() override COMMPOOL_UNCHECKED { parts_.segments.Adopt(std::move(made_), grow_.space, grow_.part); }

 private:
  PoolParts& parts_;
  const engine::Grow grow_;
  const std::optional<StreamKey> stream_;  // that asked; none for reserve()
  NewSegment made_;
};

}  // namespace

std::unique_ptr<engine::CachingEngine> MakeFixedEngine(const PoolConfiguration& configuration, uint64_t granularity) {
  engine::EngineOptions options = GrowingEngineOptions(configuration, granularity);
  options.choice = engine::Choice::kPartlyUsedFirst;
  // A segment that stands free is one block then, whichever parts of it are known to be idle: what is taken from it,
  // and when it is given back, does not depend on when the pool asked.
  options.merge = engine::MergePolicy::kCompatible;
  return std::make_unique<engine::CachingEngine>(options);
}

Status FixedGrower::Grow(uint64_t bytes, StreamKey stream, Effort effort, engine::Part part) {
  MutexLock growth(parts_.segments.growth());
  const Status awake = parts_.CheckAwake();  // since the request was looked at
  if (!awake.ok()) return awake;
  engine::Grow grow;
  {
    const engine::CachingEngine::Cutting cutting = CuttingFor(effort);
    MutexLock lock(parts_.blocks.mutex());
    engine_->SetCutting(cutting);
    Result<engine::Grow> needed = engine_->GrowthFor(bytes, stream, engine::Reuse::kSameStream, part);
    if (!needed.ok()) return parts_.basis.Named(needed.status());
    if (needed->bytes == 0) return Status();  // another thread's growth made room
    grow = *needed;
  }
  const bool makes_way = effort != Effort::kReserve && part == engine::kCommonPart;
  if (makes_way) {
    // Nobody waits on the host while other free memory would do.
    const bool large = grow.space == engine::Space::kLarge;
    const Wait wait = large && ServesFreely(bytes, stream) ? Wait::kNo : Wait::kYes;
    const Status made = MakeWay(bytes, grow.bytes, wait);
    if (!made.ok()) return made;
    if (large && Excess(bytes, grow.bytes) > 0 && ServesFreely(bytes, stream)) return Status();
    slack_.CountMade(parts_.blocks.counters(), grow.bytes);
  }
  const auto asked = effort == Effort::kReserve ? std::nullopt : std::make_optional(stream);
  Status status = AddSegment(grow, asked);
  if (status.ok() && effort == Effort::kReserve) CountReserved(grow.bytes);
  if (status.code() != StatusCode::kOutOfMemory) return status;
  // Where the usual size does not fit into what is left, the least that holds the request may.
  const uint64_t wanted = std::max(bytes, parts_.basis.configuration.segment_bytes);
  const std::optional<uint64_t> least = CheckedRoundUp(wanted, parts_.segments.granularity());
  return least && *least < grow.bytes ? AddSegment({*least, grow.space, part}, asked) : status;
}

engine::CachingEngine::Cutting FixedGrower::CuttingFor(Effort effort) {
  using Cutting = engine::CachingEngine::Cutting;
  const bool reserved = effort == Effort::kReserve || reserved_by_name_ > 0;
  // A registered pool's new segments would stay pending, and its old ones cannot go; nor can any in a capture.
  const bool stays = !parts_.registrations.empty() || parts_.basis.device->captures().any();
  return reserved || stays || slack_.IsCalm() ? Cutting::kFreely : Cutting::kSparingly;
}

bool FixedGrower::ServesFreely(uint64_t requested, StreamKey stream) {
  // No wait can be recorded for the work of a captured stream, and which those are the engine does not know.
  if (parts_.basis.device->capturing()) return false;
  MutexLock lock(parts_.blocks.mutex());
  const Result<engine::Grow> needed = engine_->GrowthFor(requested, stream, engine::Reuse::kAnyStream);
  return needed.ok() && needed->bytes == 0;
}

Status FixedGrower::AddSegment(const engine::Grow& grow, std::optional<StreamKey> stream) {
  SegmentGrowth growth(parts_, grow, stream);
  return internal::Grow(growth);
}

void FixedGrower::CountReserved(uint64_t bytes) {
  reserved_by_name_ = bytes == 0 ? 0 : reserved_by_name_ + bytes;
  MutexLock lock(parts_.blocks.mutex());
  engine_->SetSmallBlocks(reserved_by_name_ == 0 ? engine::CachingEngine::SmallBlocks::kApart
                                                 : engine::CachingEngine::SmallBlocks::kWhereTheyFit);
}

uint64_t FixedGrower::Excess(uint64_t requested, uint64_t segment_bytes) {
  const uint64_t unneeded = slack_.Excess(parts_.blocks.counters(), requested, segment_bytes, reserved_by_name_);
  return std::max(unneeded, parts_.segments.BeyondCollection(segment_bytes));
}

Status FixedGrower::MakeWay(uint64_t requested, uint64_t segment_bytes, Wait wait) {
  std::vector<engine::SegmentIndex> unused;
  {
    MutexLock lock(parts_.blocks.mutex());
    unused = engine_->LongestUnusedSegments();
  }
  std::erase_if(unused, [&](engine::SegmentIndex index) { return parts_.pins.IsPinned(index); });
  if (unused.empty() || Excess(requested, segment_bytes) == 0) return Status();
  Status status = wait == Wait::kYes ? progress_.AwaitFor(segment_bytes) : progress_.Poll();
  if (!status.ok()) return status;
  std::vector<engine::SegmentIndex> chosen;
  uint64_t over = Excess(requested, segment_bytes);
  for (auto index = unused.begin(); index != unused.end() && over > 0; ++index) {
    MutexLock lock(parts_.blocks.mutex());
    if (!engine_->IsIdle(*index)) continue;
    chosen.push_back(*index);
    over -= std::min(over, parts_.segments.BytesOf(*index));
  }
  return parts_.segments.Release(chosen).status();
}

Result<uint64_t> FixedGrower::Release(uint64_t keep_bytes, Wait wait) {
  MutexLock growth(parts_.segments.growth());
  CountReserved(0);
  parts_.blocks.PollFences();  // a block that owes one is not free
  std::vector<engine::SegmentIndex> chosen;
  {
    MutexLock lock(parts_.blocks.mutex());
    uint64_t reserved = engine_->counters().reserved_bytes.current;
    std::vector<engine::SegmentIndex> free = engine_->WhollyFreeSegments();
    for (; reserved > keep_bytes && !free.empty(); free.pop_back()) {
      if (parts_.pins.IsPinned(free.back())) continue;
      chosen.push_back(free.back());
      reserved -= parts_.segments.BytesOf(free.back());
    }
  }
  if (chosen.empty()) return uint64_t{0};

  // Wholly free now need not mean so after the wait, for other threads allocate meanwhile: only what still is goes.
  Status status = wait == Wait::kYes ? parts_.blocks.WaitForDevice() : progress_.Poll();
  if (!status.ok()) return status;
  return parts_.segments.Release(chosen);
}

}  // namespace commpool::internal
