#include "src/library/engine/cut_side.h"

#include <algorithm>

#include "src/library/engine/heap_segment.h"
#include "src/library/engine/size_classes.h"

namespace commpool::internal::engine {
namespace {

// The constants come from recorded and synthetic traces. These rules were no better, or worse: lowest fit; small blocks
// apart; tightest fit within 10 %; no small splinters; neighbours of equal age or lifetime.

// A block of at least this share of its segment counts as one of the very largest.
constexpr uint64_t kLargestShare = 6;

enum class Likeness { kAboutTwice, kNone, kLike };

// Compares a block with a neighbour (null at the segment's end). Alike: up to 1.5 times as large or small. About twice:
// up to 2.2 times.
Likeness LikenessTo(const Block* neighbour, uint64_t bytes) {
  if (neighbour == nullptr) return Likeness::kNone;
  const uint64_t less = std::min(neighbour->bytes, bytes);
  const uint64_t excess = std::max(neighbour->bytes, bytes) - less;
  if (excess < less / 2) return Likeness::kLike;
  return excess < less / 5 * 6 ? Likeness::kAboutTwice : Likeness::kNone;
}

}  // namespace

CutSide CutSideFor(uint64_t bytes, const Block& free) {
  if (free.previous == nullptr && free.next == nullptr) return CutSide::kLow;
  const Likeness below = LikenessTo(free.previous, bytes);
  const Likeness above = LikenessTo(free.next, bytes);
  if (below != above) return above > below ? CutSide::kHigh : CutSide::kLow;
  const bool largest = bytes > free.segment->range.bytes / kLargestShare;
  return largest || bytes <= kSmallBytes ? CutSide::kLow : CutSide::kHigh;
}

}  // namespace commpool::internal::engine
