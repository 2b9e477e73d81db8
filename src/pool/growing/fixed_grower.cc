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
  SegmentGrowth(const PoolBasis& basis, SegmentStore& segments, const engine::Grow& grow,
                std::optional<StreamKey> stream)
      : basis_(basis), segments_(segments), grow_(grow), stream_(stream) {}

  Status Make() override {
    segments_.growth().AssertHeld();
    Result<Room> room = segments_.TakeRoom(grow_.bytes);
    if (!room.ok()) return room.status();
    const ContextGuard current = basis_.MakeCurrent();
    Result<NewSegment> made = segments_.Make(grow_.bytes, std::move(*room), stream_);
    if (!made.ok()) return basis_.Named(made.status());
    made_ = std::move(*made);
    return Status();
  }

  void Adopt() override {
    segments_.growth().AssertHeld();
    segments_.Adopt(std::move(made_), grow_.space, grow_.part);
  }

 private:
  const PoolBasis& basis_;
  SegmentStore& segments_;
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
  MutexLock growth(segments_.growth());
  const Status awake = basis_.CheckAwake();  // since the request was looked at
  if (!awake.ok()) return awake;
  engine::Grow grow;
  {
    const engine::CachingEngine::Cutting cutting = CuttingFor(effort);
    MutexLock lock(blocks_.mutex());
    engine().SetCutting(cutting);
    Result<engine::Grow> needed = engine().GrowthFor(bytes, stream, engine::Reuse::kSameStream, part);
    if (!needed.ok()) return basis_.Named(needed.status());
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
    slack_.CountMade(blocks_.counters(), grow.bytes);
  }
  const auto asked = effort == Effort::kReserve ? std::nullopt : std::make_optional(stream);
  Status status = AddSegment(grow, asked);
  if (status.ok() && effort == Effort::kReserve) CountReserved(grow.bytes);
  if (status.code() != StatusCode::kOutOfMemory) return status;
  // Where the usual size does not fit into what is left, the least that holds the request may.
  const uint64_t wanted = std::max(bytes, basis_.configuration.segment_bytes);
  const std::optional<uint64_t> least = CheckedRoundUp(wanted, segments_.granularity());
  return least && *least < grow.bytes ? AddSegment({*least, grow.space, part}, asked) : status;
}

engine::CachingEngine::Cutting FixedGrower::CuttingFor(Effort effort) {
  using Cutting = engine::CachingEngine::Cutting;
  const bool reserved = effort == Effort::kReserve || reserved_by_name_ > 0;
  // A registered pool's new segments would stay pending, and its old ones cannot go; nor can any in a capture.
  const bool stays = !segments_.registrations().empty() || basis_.device->captures().any();
  return reserved || stays || slack_.IsCalm() ? Cutting::kFreely : Cutting::kSparingly;
}

bool FixedGrower::ServesFreely(uint64_t requested, StreamKey stream) {
  // No wait can be recorded for the work of a captured stream, and which those are the engine does not know.
  if (basis_.device->capturing()) return false;
  MutexLock lock(blocks_.mutex());
  const Result<engine::Grow> needed = engine().GrowthFor(requested, stream, engine::Reuse::kAnyStream);
  return needed.ok() && needed->bytes == 0;
}

Status FixedGrower::AddSegment(const engine::Grow& grow, std::optional<StreamKey> stream) {
  SegmentGrowth growth(basis_, segments_, grow, stream);
  return internal::Grow(growth);
}

void FixedGrower::CountReserved(uint64_t bytes) {
  reserved_by_name_ = bytes == 0 ? 0 : reserved_by_name_ + bytes;
  MutexLock lock(blocks_.mutex());
  engine().SetSmallBlocks(reserved_by_name_ == 0 ? engine::CachingEngine::SmallBlocks::kApart
                                                 : engine::CachingEngine::SmallBlocks::kWhereTheyFit);
}

uint64_t FixedGrower::Excess(uint64_t requested, uint64_t segment_bytes) {
  const uint64_t unneeded = slack_.Excess(blocks_.counters(), requested, segment_bytes, reserved_by_name_);
  return std::max(unneeded, segments_.BeyondCollection(segment_bytes));
}

Status FixedGrower::MakeWay(uint64_t requested, uint64_t segment_bytes, Wait wait) {
  std::vector<engine::SegmentIndex> unused;
  {
    MutexLock lock(blocks_.mutex());
    unused = engine().LongestUnusedSegments();
  }
  std::erase_if(unused, [&](engine::SegmentIndex index) { return segments_.IsPinned(index); });
  if (unused.empty() || Excess(requested, segment_bytes) == 0) return Status();
  Status status = wait == Wait::kYes ? progress_.AwaitFor(segment_bytes) : progress_.Poll();
  if (!status.ok()) return status;
  std::vector<engine::SegmentIndex> chosen;
  uint64_t over = Excess(requested, segment_bytes);
  for (auto index = unused.begin(); index != unused.end() && over > 0; ++index) {
    MutexLock lock(blocks_.mutex());
    if (!engine().IsIdle(*index)) continue;
    chosen.push_back(*index);
    over -= std::min(over, segments_.BytesOf(*index));
  }
  return segments_.Release(chosen).status();
}

Result<uint64_t> FixedGrower::Release(uint64_t keep_bytes, Wait wait) {
  MutexLock growth(segments_.growth());
  CountReserved(0);
  blocks_.PollFences();  // a block that owes one is not free
  const std::vector<engine::SegmentIndex> chosen = segments_.ChooseFree(keep_bytes, SegmentStore::Pinned::kStay);
  if (chosen.empty()) return uint64_t{0};

  // Wholly free now need not mean so after the wait, for other threads allocate meanwhile: only what still is goes.
  Status status = wait == Wait::kYes ? blocks_.WaitForDevice() : progress_.Poll();
  if (!status.ok()) return status;
  return segments_.Release(chosen);
}

}  // namespace commpool::internal
