#include "src/library/engine/expansion.h"

#include <tuple>

#include "src/library/base/bytes.h"
#include "src/library/base/check.h"

namespace commpool::internal::engine {
namespace {

// Limits of what stays behind of a free block when its whole pages move, so that few splinters remain: so many bytes
// for each byte that moves, and one part in so many of the pool's memory. Found by replaying traces
// (tests/data/traces).
constexpr uint64_t kMostLeftForEachMoved = 3;
constexpr uint64_t kMostLeftShare = 300;

template <typename Pieces>
uint64_t Sum(const Pieces& pieces) {
  uint64_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.bytes;
  return bytes;
}

// A range of addresses for the request: free memory, and holes to fill.
struct Window {
  Address begin = 0;
  Address end = 0;
  std::vector<SegmentRange> holes = {};
  uint64_t missing_bytes = 0;  // before they are rounded up to the granularity
  uint64_t room_below = 0;     // of the hole where it begins, which pages may fill too
};

bool IsUsable(const Block& block, const ExpansionRequest& request) {
  if (block.state != BlockState::kFree || block.part != request.part) return false;
  if (request.reuse == Reuse::kAnyStream) return !IsStranded(block);
  return !block.uses.Any([&](const Use& use) { return use.stream != request.stream; });
}

// The window that begins with this block. Nothing where a block in use, or the territory's end, comes before its end.
std::optional<Window> WindowFrom(const Block* first, const ExpansionRequest& request) {
  // Compares sizes: the end address of a huge request would wrap around.
  if (request.block_bytes > first->segment->range.bytes - first->offset) return std::nullopt;
  Window window{AddressOf(*first), AddressOf(*first) + request.block_bytes};
  Address at = window.begin;
  for (const Block* block = first; at < window.end; block = block->next) {
    if (block->state == BlockState::kUnmapped) {
      const uint64_t wanted = std::min(window.end - at, block->bytes);
      const uint64_t filled = std::min(RoundUp(wanted, request.granularity), block->bytes);
      window.holes.push_back({at, filled});
      window.missing_bytes += wanted;
    } else if (!IsUsable(*block, request)) {
      return std::nullopt;
    }
    at = AddressOf(*block) + block->bytes;
  }
  return window;
}

// The window that ends with this block and begins in a hole below it. It leaves a part of the hole: otherwise the new
// memory might merge with memory further below that others used.
std::optional<Window> WindowTo(const Block* last, const ExpansionRequest& request) {
  if (request.block_bytes > last->offset + last->bytes) return std::nullopt;
  const Address end = AddressOf(*last) + last->bytes;
  Window window{end, end};
  for (const Block* block = last; window.end - window.begin < request.block_bytes; block = block->previous) {
    const uint64_t wanted = std::min(request.block_bytes - (window.end - window.begin), block->bytes);
    window.begin -= wanted;
    if (block->state != BlockState::kUnmapped) {
      if (!IsUsable(*block, request)) return std::nullopt;
      continue;
    }
    const uint64_t filled = std::min(RoundUp(wanted, request.granularity), block->bytes);
    window.begin -= filled - wanted;
    window.holes.insert(window.holes.begin(), {window.begin, filled});
    window.missing_bytes += wanted;
    if (block->bytes - filled < request.granularity && window.end - window.begin >= request.block_bytes) {
      return std::nullopt;
    }
    window.room_below = block->bytes - filled - request.granularity;
  }
  if (window.holes.empty() || window.begin != window.holes.front().address) return std::nullopt;
  return window;
}

// The window with the fewest bytes to fill. A window without free memory lies at the beginning of the largest hole.
std::optional<Window> BestWindow(const Heap& heap, const ExpansionRequest& request) {
  std::optional<Window> best;
  const Block* largest_hole = nullptr;
  for (const auto& [index, segment] : heap.segments()) {
    if (segment->space != request.space) continue;
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      const bool is_hole = block->state == BlockState::kUnmapped;
      if (is_hole && (largest_hole == nullptr || block->bytes > largest_hole->bytes)) largest_hole = block;
      if (!IsUsable(*block, request)) continue;
      for (std::optional<Window> window : {WindowFrom(block, request), WindowTo(block, request)}) {
        if (window && (!best || window->missing_bytes < best->missing_bytes)) best = std::move(window);
      }
    }
  }
  if (!best && largest_hole != nullptr) best = WindowFrom(largest_hole, request);
  return best;
}

// A free page that may move.
struct Donor {
  Address address = 0;
  uint64_t bytes = 0;
  uint64_t splinters = 0;  // what the block leaves behind
};

// The pages that lie wholly inside a free block.
std::vector<SegmentRange> PagesOf(const Block& block, const Pages& pages) {
  std::vector<SegmentRange> whole;
  const Address end = AddressOf(block) + block.bytes;
  auto page = pages.lower_bound(AddressOf(block));
  for (; page != pages.end() && page->first + page->second <= end; ++page) {
    whole.push_back({page->first, page->second});
  }
  return whole;
}

// Free pages outside the window. Those that leave the fewest splinters come first, and of these the largest.
std::vector<Donor> FindDonors(const Heap& heap, const Pages& pages, const Window& window,
                              const ExpansionRequest& request, uint64_t* busy_bytes) {
  std::vector<Donor> donors;
  uint64_t reserved = 0;
  for (const auto& [address, bytes] : pages) reserved += bytes;
  for (const auto& [index, segment] : heap.segments()) {
    // Do not take pages of small blocks: they are small and few, and would soon be missed.
    if (segment->space != request.space && request.donors != Donors::kAll) continue;
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->state != BlockState::kFree || block->part != kCommonPart) continue;
      const Address begin = AddressOf(*block);
      if (begin < window.end && begin + block->bytes > window.begin) continue;
      const std::vector<SegmentRange> whole = PagesOf(*block, pages);
      if (whole.empty()) continue;
      const uint64_t left = block->bytes - Sum(whole);
      const bool splinters = left > kMostLeftForEachMoved * (block->bytes - left) || left > reserved / kMostLeftShare;
      if (request.donors == Donors::kWhole && splinters) continue;
      if (block->uses.empty()) {
        for (const SegmentRange& page : whole) donors.push_back({page.address, page.bytes, left});
      } else if (!IsStranded(*block)) {  // nobody can ask about a stranded block's work
        *busy_bytes += block->bytes - left;
      }
    }
  }
  std::sort(donors.begin(), donors.end(), [](const Donor& a, const Donor& b) {
    return std::tie(a.splinters, b.bytes, b.address) < std::tie(b.splinters, a.bytes, a.address);
  });
  return donors;
}

// Chooses donors that fit into the bytes still to fill. Where all together are enough, the last may be larger than what
// is left to fill, if the addresses behind the window are free.
std::vector<Donor> Choose(const std::vector<Donor>& donors, uint64_t wanted, uint64_t room_behind) {
  std::vector<Donor> chosen;
  std::vector<Donor> left;
  uint64_t remaining = wanted;
  for (const Donor& donor : donors) {
    const bool fits = donor.bytes <= remaining;
    (fits ? chosen : left).push_back(donor);
    if (fits) remaining -= donor.bytes;
  }
  // Pages in a row stay together, so that one call unmaps them.
  std::sort(chosen.begin(), chosen.end(),
            [](const Donor& a, const Donor& b) { return std::tie(b.bytes, a.address) < std::tie(a.bytes, b.address); });
  if (remaining > 0 && Sum(donors) >= wanted && !left.empty()) {
    const Donor least = std::ranges::min(left, {}, &Donor::bytes);
    if (least.bytes - remaining <= room_behind) chosen.push_back(least);
  }
  return chosen;
}

// Covers the range with pages.
void MakePages(const SegmentRange& range, uint64_t page_bytes, std::vector<SegmentRange>& made) {
  for (uint64_t at = 0; at < range.bytes; at += made.back().bytes) {
    made.push_back({range.address + at, std::min(range.bytes - at, page_bytes)});
  }
}

// Fills a hole with the chosen pages, and what is left of it with new pages. The last hole may be filled beyond its
// end.
void Fill(const SegmentRange& hole, uint64_t room_behind, const ExpansionRequest& request, std::vector<Donor>& chosen,
          Expansion& expansion) {
  Address at = hole.address;
  const Address end = hole.address + hole.bytes;
  std::erase_if(chosen, [&](const Donor& donor) {
    if (at >= end || at + donor.bytes > end + room_behind) return false;
    expansion.moves.push_back({donor.address, at, donor.bytes});
    at += donor.bytes;
    return true;
  });
  if (at < end) MakePages({at, end - at}, request.page_bytes, expansion.made);
  expansion.arriving.push_back({hole.address, std::max(at, end) - hole.address});
}

}  // namespace

uint64_t Expansion::moved_bytes() const { return Sum(moves); }

uint64_t Expansion::made_bytes() const { return Sum(made); }

size_t Expansion::EndOfRow(size_t first, Address limit) const {
  size_t end = first + 1;
  while (end < moves.size() && moves[end].from == moves[end - 1].from + moves[end - 1].bytes &&
         moves[end].from < limit) {
    ++end;
  }
  return end;
}

Expansion PlanExpansion(const Heap& heap, const Pages& pages, const ExpansionRequest& request) {
  Expansion expansion;
  expansion.claimant.part = request.part;
  std::optional<Window> window = BestWindow(heap, request);
  if (!window) return expansion;
  COMMPOOL_CHECK(!window->holes.empty(), "a growth is planned for a request that free memory serves already");
  // A page may reach into addresses without memory behind the last hole.
  const SegmentRange& last = window->holes.back();
  const Block* const hole = heap.Find(last.address);
  const uint64_t room_behind = AddressOf(*hole) + hole->bytes - (last.address + last.bytes);

  std::vector<Donor> chosen;
  if (request.donors != Donors::kNone) {
    const std::vector<Donor> donors = FindDonors(heap, pages, *window, request, &expansion.busy_bytes);
    const bool one = window->holes.size() == 1;
    chosen = Choose(donors, Sum(window->holes), one ? std::max(room_behind, window->room_below) : 0);
    // The window begins further below where the last chosen page is larger than what was left to fill.
    if (one && window->room_below > 0) {
      SegmentRange& range = window->holes.front();
      const uint64_t bytes = std::max(range.bytes, Sum(chosen));
      range = {range.address + range.bytes - bytes, bytes};
    }
  }
  for (const SegmentRange& range : window->holes) {
    Fill(range, &range == &last ? room_behind : 0, request, chosen, expansion);
  }
  return expansion;
}

void CutPages(uint64_t page_bytes, Expansion& expansion) {
  std::vector<SegmentRange> rows;
  for (const SegmentRange& page : expansion.made) {
    if (rows.empty() || rows.back().address + rows.back().bytes != page.address) rows.push_back({page.address, 0});
    rows.back().bytes += page.bytes;
  }
  expansion.made.clear();
  for (const SegmentRange& row : rows) MakePages(row, page_bytes, expansion.made);
}

}  // namespace commpool::internal::engine
