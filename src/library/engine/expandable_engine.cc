#include "src/library/engine/expandable_engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "src/library/base/bytes.h"
#include "src/library/base/check.h"
#include "src/library/base/try.h"

namespace commpool::internal::engine {

namespace {

// One part in so many of the request is a page, where that is more than the usual page: each page costs the driver some
// 24 us, and more when it moves.
constexpr uint64_t kRequestShare = 64;
constexpr uint64_t kSmallRequestShare = 128;  // of small pages
// A program is steady once it has asked for this many times its highest need since that need last rose.
constexpr uint64_t kSteadyTimes = 2;

// Blocks that come and go at random would move pages for ever. So a pool that has moved more bytes than the program's
// highest need may hold more: one part in so many of what it moved beyond that need. A smaller part saves little
// memory: the pool ends about as large, after more moves.
constexpr uint64_t kMovedShare = 4;

constexpr uint64_t kMostMilliseconds = 100;  // the longest host wait for pages

}  // namespace

GrowthPlan::GrowthPlan(Expansion expansion, const Heap& heap) : pages(std::move(expansion)) {
  using Kind = GrowthStep::Kind;
  for (const SegmentRange& page : pages.made) steps.push_back({Kind::kMakePage, page});
  for (const SegmentRange& page : pages.made) steps.push_back({Kind::kMap, page});
  for (size_t first = 0, end = 0; first < pages.moves.size(); first = end) {
    const SegmentRange& territory = heap.Find(pages.moves[first].from)->segment->range;
    end = pages.EndOfRow(first, territory.address + territory.bytes);
    const Address from = pages.moves[first].from;
    const PageMove& last = pages.moves[end - 1];
    steps.push_back({Kind::kUnmap, {from, last.from + last.bytes - from}, end - first});
    for (size_t index = first; index < end; ++index) {
      steps.push_back({Kind::kMap, {pages.moves[index].to, pages.moves[index].bytes}});
    }
  }
  for (const SegmentRange& range : pages.arriving) steps.push_back({Kind::kOpen, range});
}

uint64_t ExpandableEngine::PageBytes(const RequestSizes& sizes) const {
  // Pages of small blocks are small, because one live block keeps its whole page from moving.
  if (sizes.space == Space::kSmall) return options().granularity;
  if (options().segment_bytes != 0) return options().page_bytes;  // the program chose the size
  return std::max(options().page_bytes, RoundDown(sizes.block_bytes / kRequestShare, options().granularity));
}

uint64_t ExpandableEngine::SmallPageBytes(const RequestSizes& sizes) const {
  const uint64_t usual = PageBytes(sizes);
  if (options().segment_bytes != 0 || options().slack.page_share == 0) return usual;
  const uint64_t memory = sums().reserved_bytes.current + sizes.block_bytes;
  const uint64_t most = std::max(memory / options().slack.page_share, sizes.block_bytes / kSmallRequestShare);
  return std::min(usual, std::max(RoundDown(most, options().granularity), options().granularity));
}

uint64_t ExpandableEngine::NeededWith(uint64_t requested) const {
  const Counter& asked = sums().requested_bytes;
  return std::max(asked.peak, asked.current + requested);
}

bool ExpandableEngine::IsWithin(uint64_t share, uint64_t requested, uint64_t made) const {
  const uint64_t needed = NeededWith(requested);
  const uint64_t earned = moved_bytes_ > needed ? (moved_bytes_ - needed) / kMovedShare : 0;
  return share == 0 || sums().reserved_bytes.current + made <= needed + needed / share + earned;
}

bool ExpandableEngine::GrowsCheaply(uint64_t requested, uint64_t made) {
  const uint64_t needed = NeededWith(requested);
  const uint64_t total = sums().requested_bytes.total;
  if (needed > highest_needed_) {
    highest_needed_ = needed;
    total_at_highest_ = total;
  }
  const bool steady = total - total_at_highest_ > kSteadyTimes * needed;
  return IsWithin(steady ? options().slack.steady_move_share : options().slack.move_share, requested, made);
}

Result<Grow> ExpandableEngine::GrowthFor(uint64_t bytes, StreamKey stream, Reuse reuse, Part part) {
  Result<Grow> growth = CachingEngine::GrowthFor(bytes, stream, Reuse::kSameStream, part);
  if (!growth.ok() || growth->bytes == 0 || reuse != Reuse::kAnyStream || part != kCommonPart) return growth;
  const Result<RequestSizes> sizes = SizesOf(bytes, options());
  if (IsWithin(options().slack.wait_share, bytes, sizes->block_bytes)) return growth;
  if (own_heap().LargestUnited(sizes->space) < sizes->block_bytes) return growth;
  own_heap().UnifyAll(sizes->space);
  return Grow{};
}

Result<GrowthPlan> ExpandableEngine::PlanPages(const GrowthRequest& request, Donors donors) {
  // While a stream captures, nobody can wait for its work. The engine does not know which streams capture, so it takes
  // memory of no other stream.
  const Reuse reuse = request.capturing ? Reuse::kSameStream : Reuse::kAnyStream;
  const Grow grow = COMMPOOL_TRY(GrowthFor(request.bytes, request.stream, reuse, request.part));
  if (grow.bytes == 0) return GrowthPlan();
  Expansion pages = COMMPOOL_TRY(Plan(request.bytes, request.stream, donors, request.part, reuse));
  if (pages.needs_territory()) {
    return GrowthPlan({.kind = GrowthStep::Kind::kAddAddresses, .range = {0, grow.bytes}, .space = grow.space});
  }
  // Memory that merges with what another stream used serves nobody until the capture ends.
  if (request.capturing) pages.claimant.stream = request.stream;
  return GrowthPlan(std::move(pages), own_heap());
}

Result<GrowthPlan> ExpandableEngine::PlanGrowth(GrowthRequest& request) {
  using Kind = GrowthStep::Kind;
  if (request.part != kCommonPart) return PlanPages(request, Donors::kNone);
  const bool asked = request.asked;
  if (request.effort == Effort::kPressure) {
    request.asked = true;
    return asked ? PlanPages(request, Donors::kAll) : GrowthPlan({Kind::kAwaitDevice});
  }
  if (!asked) {
    Result<GrowthPlan> plan = PlanPages(request, Donors::kNone);
    if (!plan.ok() || plan->again || plan->steps.empty()) return plan;
    const uint64_t made = plan->pages.made_bytes();
    const bool collects = request.Excess(made) > 0;
    const auto cheap = [&] { return made <= request.room && GrowsCheaply(request.bytes, made); };
    if (!collects && (!request.moves_eagerly || cheap())) return plan;
  }
  Result<GrowthPlan> plan = PlanPages(request, Donors::kWhole);
  if (!plan.ok() || asked || plan->again || plan->pages.busy_bytes == 0 || plan->pages.made_bytes() == 0) return plan;
  request.asked = true;
  const uint64_t made = plan->pages.made_bytes();
  if (request.capturing || !GrowsTooFar(request.bytes, made)) return GrowthPlan({Kind::kAsk});
  // The wait lasts one millisecond for each MiB that the pool would otherwise hold for good. It has a limit, because
  // the work may depend on something that this thread does later.
  const uint64_t milliseconds = std::min(RoundUp(made, kMiB) / kMiB, kMostMilliseconds);
  return GrowthPlan({.kind = Kind::kAwait, .microseconds = 1000 * milliseconds});
}

Result<Expansion> ExpandableEngine::Plan(uint64_t bytes, StreamKey stream, Donors donors, Part part, Reuse reuse) {
  const RequestSizes sizes = COMMPOOL_TRY(SizesOf(bytes, options()));
  ExpansionRequest request{sizes.block_bytes, stream, sizes.space, donors};
  request.granularity = options().granularity;
  request.page_bytes = PageBytes(sizes);
  request.part = part;
  Expansion plan = PlanExpansion(own_heap(), pages_, request);
  if (plan.made_bytes() == 0 || part != kCommonPart) return plan;
  if (reuse == Reuse::kAnyStream && !IsWithin(options().slack.wait_share, bytes, sizes.block_bytes)) {
    request.reuse = reuse;
    plan = PlanExpansion(own_heap(), pages_, request);
  }
  if (donors == Donors::kWhole && !IsWithin(options().slack.splinter_share, bytes, plan.made_bytes())) {
    request.donors = Donors::kAll;
    plan = PlanExpansion(own_heap(), pages_, request);
  }
  if (!IsWithin(options().slack.small_page_share, bytes, plan.made_bytes())) CutPages(SmallPageBytes(sizes), plan);
  if (request.reuse == Reuse::kAnyStream) plan.unites = sizes.space;
  return plan;
}

bool ExpandableEngine::IsIdlePage(const SegmentRange& page) const {
  const Block* const block = heap().Find(page.address);
  return block->state == BlockState::kFree && block->part == kCommonPart && block->uses.empty() &&
         AddressOf(*block) + block->bytes >= page.address + page.bytes;
}

bool ExpandableEngine::Claim(const Expansion& expansion) {
  const auto stays = [&](const PageMove& move) { return !IsIdlePage({move.from, move.bytes}); };
  if (std::ranges::any_of(expansion.moves, stays)) return false;
  moved_bytes_ += expansion.moved_bytes();
  for (const SegmentRange& range : expansion.arriving) {
    Convert(range, BlockState::kUnmapped, BlockState::kArriving);
  }
  for (const PageMove& move : expansion.moves) {
    Convert({move.from, move.bytes}, BlockState::kFree, BlockState::kLeaving);
  }
  return true;
}

void ExpandableEngine::Complete(const Expansion& expansion) {
  // In ascending order each page merges with the request's memory below it, and not with memory above that others used.
  auto page = expansion.made.begin();
  const auto complete_made = [&](Address end) {
    for (; page != expansion.made.end() && page->address < end; ++page) {
      pages_.emplace(page->address, page->bytes);
      AddPage();
      Convert(*page, BlockState::kArriving, BlockState::kFree, expansion.claimant);
    }
  };
  for (const PageMove& move : expansion.moves) {
    complete_made(move.to);
    COMMPOOL_CHECK(pages_.erase(move.from) == 1, "a page moves that there is not");
    pages_.emplace(move.to, move.bytes);
    // Not counted: no memory comes or goes.
    own_heap().Convert({move.from, move.bytes}, BlockState::kLeaving, BlockState::kUnmapped);
    own_heap().Convert({move.to, move.bytes}, BlockState::kArriving, BlockState::kFree, expansion.claimant);
  }
  complete_made(std::numeric_limits<Address>::max());
  if (expansion.unites) own_heap().UnifyAll(*expansion.unites);
}

void ExpandableEngine::Unclaim(const Expansion& expansion, size_t first_move) {
  for (size_t index = first_move; index < expansion.moves.size(); ++index) {
    UnclaimPage({expansion.moves[index].from, expansion.moves[index].bytes});
  }
  for (const SegmentRange& range : expansion.arriving) {
    Convert(range, BlockState::kArriving, BlockState::kUnmapped);
  }
}

std::vector<SegmentRange> ExpandableEngine::ClaimIdlePages(uint64_t bytes) {
  std::vector<SegmentRange> claimed;
  uint64_t together = 0;
  for (auto page = pages_.rbegin(); page != pages_.rend() && together < bytes; ++page) {
    const SegmentRange range{page->first, page->second};
    if (!IsIdlePage(range)) continue;
    Convert(range, BlockState::kFree, BlockState::kLeaving);
    claimed.push_back(range);
    together += range.bytes;
  }
  return claimed;
}

void ExpandableEngine::RemovePage(const SegmentRange& page) {
  COMMPOOL_CHECK(pages_.erase(page.address) == 1, "a page is removed that there is not");
  Engine::RemovePage();
  Convert(page, BlockState::kLeaving, BlockState::kUnmapped);
}

}  // namespace commpool::internal::engine
