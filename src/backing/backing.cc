#include "src/backing/backing.h"

#include <optional>

#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/base/try.h"

namespace commpool::internal {

namespace {

// kInvalidArgument for zero and for sizes that overflow.
Result<uint64_t> RoundToGranularity(uint64_t bytes, uint64_t granularity) {
  if (bytes == 0) return Status(StatusCode::kInvalidArgument, "a segment of 0 bytes cannot be made");
  const std::optional<uint64_t> rounded = CheckedRoundUp(bytes, granularity);
  if (rounded) return *rounded;
  return Status(StatusCode::kInvalidArgument, "a segment of " + std::to_string(bytes) +
                                                  " bytes cannot be made: rounded up to " + FormatBytes(granularity) +
                                                  " it overflows 64 bits");
}

}  // namespace

Backing::Backing(const BackingRow& row, const BackingBasis& basis, uint64_t granularity)
    : row_(row),
      driver_(basis.driver),
      placement_(basis.placement),
      context_(basis.context),
      granularity_(granularity) {}

Result<std::unique_ptr<Segment>> Backing::Make(const SegmentRequest& request) {
  const uint64_t bytes = COMMPOOL_TRY(RoundToGranularity(request.bytes, granularity_));
  ContextGuard guard(driver_, context_->get());
  std::unique_ptr<Segment> segment = COMMPOOL_TRY(MakeSegment(bytes, request));
  if (!request.peers.empty()) COMMPOOL_TRY(segment->Grant(request.peers));
  return segment;
}

Result<PhysicalMemory> Backing::MakePage(uint64_t) {
  COMMPOOL_CHECK(false, "a backing whose memory comes in no pages is asked for one");
}

Status Backing::CanRevoke() const {
  return row_.why_no_revoke == nullptr ? Status() : Status(StatusCode::kFailedPrecondition, row_.why_no_revoke);
}

}  // namespace commpool::internal
