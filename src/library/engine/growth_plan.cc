#include "src/library/engine/growth_plan.h"

#include <algorithm>
#include <utility>

namespace commpool::internal::engine {

namespace {

template <typename Pieces, typename AddressOfPiece>
size_t CountIn(const SegmentRange& range, const Pieces& pieces, AddressOfPiece address_of) {
  return static_cast<size_t>(std::count_if(pieces.begin(), pieces.end(), [&](const auto& piece) {
    return address_of(piece) - range.address < range.bytes;
  }));
}

}  // namespace

GrowthPlan::GrowthPlan(Expansion expansion, const Heap& heap) : pages(std::move(expansion)) {
  using Kind = GrowthStep::Kind;
  for (const SegmentRange& page : pages.made) steps.push_back({Kind::kMakePage, page, 1});
  for (const SegmentRange& page : pages.made) steps.push_back({Kind::kMap, page, 1});
  for (size_t first = 0, end = 0; first < pages.moves.size(); first = end) {
    const SegmentRange& territory = heap.Find(pages.moves[first].from)->segment->range;
    end = pages.EndOfRow(first, territory.address + territory.bytes);
    const Address from = pages.moves[first].from;
    const PageMove& last = pages.moves[end - 1];
    steps.push_back({Kind::kUnmap, {from, last.from + last.bytes - from}, end - first});
    for (size_t index = first; index < end; ++index) {
      steps.push_back({Kind::kMap, {pages.moves[index].to, pages.moves[index].bytes}, 1});
    }
  }
  for (const SegmentRange& range : pages.arriving) {
    const size_t moved = CountIn(range, pages.moves, [](const PageMove& move) { return move.to; });
    const size_t made = CountIn(range, pages.made, [](const SegmentRange& page) { return page.address; });
    steps.push_back({Kind::kOpen, range, moved + made});
  }
}

}  // namespace commpool::internal::engine
