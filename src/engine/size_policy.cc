#include "src/engine/size_policy.h"

#include <algorithm>

#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/engine/messages.h"

namespace commpool::engine {
namespace {

constexpr uint64_t kSmallRequest = 1 * kMiB;
constexpr uint64_t kSmallSegment = 2 * kMiB;
constexpr uint64_t kLargeRequest = 10 * kMiB;
constexpr uint64_t kMediumSegment = 20 * kMiB;

}  // namespace

void CheckOptions(const EngineOptions& options) {
  COMMPOOL_CHECK(IsPowerOfTwo(options.alignment), "the alignment of blocks is no power of two");
  COMMPOOL_CHECK(options.granularity > 0 && options.granularity % options.alignment == 0,
                 "the granularity of segments is no multiple of the alignment of blocks");
}

std::optional<uint64_t> BlockBytes(uint64_t requested, uint64_t alignment) {
  return CheckedRoundUp(requested, alignment);
}

std::optional<uint64_t> SegmentBytes(uint64_t block_bytes, uint64_t granularity, uint64_t minimum) {
  uint64_t bytes = block_bytes;
  if (block_bytes <= kSmallRequest) {
    bytes = kSmallSegment;
  } else if (block_bytes < kLargeRequest) {
    bytes = kMediumSegment;
  }
  return CheckedRoundUp(std::max(bytes, minimum), granularity);
}

Result<RequestSizes> SizesOf(uint64_t requested, const EngineOptions& options) {
  if (requested == 0) return ZeroBytes();
  const std::optional<uint64_t> block = BlockBytes(requested, options.alignment);
  if (!block) return TooManyBytes(requested, options.alignment);
  const std::optional<uint64_t> segment = SegmentBytes(*block, options.granularity, options.segment_bytes);
  if (!segment) return TooManyBytes(requested, options.granularity);
  return RequestSizes{*block, *segment};
}

}  // namespace commpool::engine
