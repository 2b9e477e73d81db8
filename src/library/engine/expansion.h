// Plans how an expandable pool makes room for a request: which free pages move where, and which pages are new.
//
// A page is one physical handle, mapped at a place of its own in a territory. It moves only as a whole, and only while
// nobody uses a byte of it. Pure: the functions decide here, and the pool calls the driver. ExpandableEngine calls
// them.
#ifndef COMMPOOL_SRC_LIBRARY_ENGINE_EXPANSION_H_
#define COMMPOOL_SRC_LIBRARY_ENGINE_EXPANSION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "src/library/engine/heap.h"
#include "src/library/engine/types.h"

namespace commpool::internal::engine {

using Pages = std::map<Address, uint64_t>;  // address -> bytes

// Which free pages may move.
enum class Donors {
  kNone,
  kWhole,  // of free blocks that are mostly whole pages: other blocks would leave splinters behind
  kAll,
};

// A request that free memory does not serve, and how far the plan may go for it.
struct ExpansionRequest {
  uint64_t block_bytes = 0;
  StreamKey stream = 0;
  Space space = Space::kLarge;
  Donors donors = Donors::kWhole;
  uint64_t granularity = 0;          // pages are multiples of it
  uint64_t page_bytes = 0;           // the largest new page
  Part part = kCommonPart;           // whose free memory the pages complete
  Reuse reuse = Reuse::kSameStream;  // which of that memory
};

// A free page moves from one address to another; its physical memory stays the same.
struct PageMove {
  Address from = 0;
  Address to = 0;
  uint64_t bytes = 0;
};

// The plan. ExpandableEngine claims it, the pool carries it out, and ExpandableEngine completes it.
struct Expansion {
  std::vector<PageMove> moves;         // ascending by target
  std::vector<SegmentRange> made;      // pages to make, with their addresses, ascending
  std::vector<SegmentRange> arriving;  // the addresses that moves and made fill, each one range without memory
  bool needs_territory = false;        // no range of addresses is large enough: add one and plan again
  Claimant claimant = {};              // who gets the new pages
  std::optional<Space> unites = {};    // where all free neighbours merge with the new pages, whoever used them
  uint64_t busy_bytes = 0;             // free pages that could have moved if their streams were done

  uint64_t moved_bytes() const;
  uint64_t made_bytes() const;
  // The end of a row of moves that begins with `first`. The pages of a row lie one behind the other at the source, and
  // below `limit`, so one driver call unmaps them all.
  size_t EndOfRow(size_t first, Address limit) const;
};

// Finds the window of addresses that needs the fewest new bytes, and fills it with free pages first. REQUIRES: no free
// block that the stream may take at once holds the request (Heap::Unify).
Expansion PlanExpansion(const Heap& heap, const Pages& pages, const ExpansionRequest& request);

// Lets the plan make the same memory in pages of at most `page_bytes`.
void CutPages(uint64_t page_bytes, Expansion& expansion);

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_LIBRARY_ENGINE_EXPANSION_H_
