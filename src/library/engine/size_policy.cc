#include "src/library/engine/size_policy.h"

#include <algorithm>

#include "src/library/base/bytes.h"
#include "src/library/base/failure.h"

namespace commpool::internal::engine {
namespace {

// PyTorch makes segments of 20 MiB for requests of up to 10 MiB. On recorded traces that takes 12 % fewer calls and as
// much memory, but a pool's first block then takes 20 MiB.
constexpr uint64_t kSmallSegment = 2 * kMiB;
constexpr uint64_t kLargeRequest = 4 * kMiB;
constexpr uint64_t kMediumSegment = 8 * kMiB;

Status TooManyBytes(uint64_t bytes, uint64_t unit) {
  return InvalidArgument("allocate: ", bytes, " bytes rounded up to a multiple of ", unit,
                         " exceed 64 bits: probably a negative or uninitialised size");
}

}  // namespace

std::optional<uint64_t> SegmentBytes(uint64_t block_bytes, const EngineOptions& options) {
  uint64_t bytes = block_bytes;
  if (block_bytes <= kSmallBytes) {
    bytes = kSmallSegment;
  } else if (block_bytes < kLargeRequest && options.segment_sizes == SegmentSizes::kRoomy) {
    bytes = kMediumSegment;
  }
  return CheckedRoundUp(std::max(bytes, options.segment_bytes), options.granularity);
}

Result<RequestSizes> SizesOf(uint64_t requested, const EngineOptions& options) {
  if (requested == 0) return InvalidArgument("allocate: 0 bytes asked for; a block has at least 1 byte");
  const std::optional<uint64_t> block = BlockBytesOf(requested, options);
  if (!block) return TooManyBytes(requested, options.alignment);
  const std::optional<uint64_t> segment = SegmentBytes(*block, options);
  if (!segment) return TooManyBytes(requested, options.granularity);
  return RequestSizes{*block, *segment, SpaceOf(*block, options.spaces)};
}

}  // namespace commpool::internal::engine
