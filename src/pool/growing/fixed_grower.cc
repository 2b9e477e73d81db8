// Grows a fixed pool by segments that never move, and releases whole segments.
#include <optional>
#include <utility>
#include <vector>

#include "src/base/try.h"
#include "src/pool/growing/grower.h"

namespace commpool::internal {

namespace {

class FixedGrower final : public Grower {
 public:
  using Grower::Grower;

  // Releases unpinned segments, the largest index first.
  Result<uint64_t> Release(uint64_t keep_bytes, Wait wait) override {
    MutexLock growth(segments_.growth());
    SetReserved(false);
    blocks_.PollFences();  // a block with a pending fence is not free
    if (wait == Wait::kYes && blocks_.AwaitsDevice()) COMMPOOL_TRY(blocks_.WaitForDevice());
    const std::vector<engine::SegmentIndex> chosen = segments_.ChooseFree(keep_bytes, SegmentStore::Pinned::kStay);
    if (chosen.empty()) return uint64_t{0};

    // Other threads allocate during the wait, so a segment that was wholly free may have blocks now. Release only those
    // that are still free.
    COMMPOOL_TRY(wait == Wait::kYes ? blocks_.WaitForDevice() : progress_.Poll());
    return segments_.Release(chosen);
  }

 private:
  Status Do(const engine::GrowthStep& step, Growth& growth) override COMMPOOL_REQUIRES(segments_.growth()) {
    if (step.kind == engine::GrowthStep::Kind::kRelease) return segments_.Release({step.segment}).status();
    const bool reserves = growth.request.effort == Effort::kReserve;
    const auto asked = reserves ? std::nullopt : std::make_optional(growth.request.stream);
    Status status = MakeSegment(step, step.range.bytes, asked);
    const bool less = status.code() == StatusCode::kOutOfMemory && step.least_bytes < step.range.bytes;
    if (less) status = MakeSegment(step, step.least_bytes, asked);
    if (status.ok() && reserves) SetReserved(true);
    return status;
  }

  // `stream`: the stream that asked; none for reserve().
  Status MakeSegment(const engine::GrowthStep& step, uint64_t bytes, std::optional<StreamKey> stream)
      COMMPOOL_REQUIRES(segments_.growth()) {
    Room room = COMMPOOL_TRY(segments_.TakeRoom(bytes));
    Result<NewSegment> made = segments_.Make(bytes, std::move(room), stream);
    if (!made.ok()) return basis_.Named(made.status());
    segments_.Adopt(std::move(*made), step.space, step.part);
    return Status();
  }

  // Segments of reserve() serve blocks of every size and stay, because the program asked for them.
  void SetReserved(bool reserved) {
    MutexLock lock(blocks_.mutex());
    engine().SetReserved(reserved);
  }
};

}  // namespace

std::unique_ptr<Grower> MakeFixedGrower(PoolBasis& basis, BlockStore& blocks, SegmentStore& segments,
                                        StreamProgress& progress) {
  return std::make_unique<FixedGrower>(basis, blocks, segments, progress);
}

}  // namespace commpool::internal
