// How an expandable pool makes room for a request: which free pages move where, and which pages are new.
//
// A page is one physical handle, mapped at its own place among the addresses of a territory; it can move only whole,
// and only while nobody uses a byte of it. Pure, like the engine: it decides, the pool calls the driver.
#ifndef COMMPOOL_SRC_ENGINE_EXPANSION_H_
#define COMMPOOL_SRC_ENGINE_EXPANSION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "src/base/host_reserve.h"
#include "src/engine/heap.h"
#include "src/engine/types.h"

namespace commpool::internal::engine {

using Pages = ReservedMap<Address, uint64_t>;  // address -> bytes

// Which free pages may move.
enum class Donors {
  kNone,
  kWhole,  // of free blocks that consist of pages for the most part: what is left behind of others would be splinters
  kAll,
};

struct ExpansionRequest {
  uint64_t block_bytes = 0;
  StreamKey stream = 0;
  Space space = Space::kLarge;
  Donors donors = Donors::kWhole;
  uint64_t granularity = 0;          // pages are multiples of it
  uint64_t page_bytes = 0;           // of new pages, at most
  Part part = kCommonPart;           // whose free memory is filled up
  Reuse reuse = Reuse::kSameStream;  // which of it
};

struct PageMove {
  Address from = 0;
  Address to = 0;
  uint64_t bytes = 0;
};

struct Expansion {
  std::vector<PageMove> moves;         // by where they go, ascending
  std::vector<SegmentRange> made;      // pages to make, with their addresses, ascending
  std::vector<SegmentRange> arriving;  // the addresses that moves and made fill, each one range without memory
  bool needs_territory = false;        // no address range is large enough: add one and plan again
  Claimant claimant = {};              // who gets the pages that come
  std::optional<Space> unites = {};    // where free neighbours become one block with what comes, whoever used them
  uint64_t busy_bytes = 0;             // of free pages that could have moved if their streams' work were done

  uint64_t moved_bytes() const;
  uint64_t made_bytes() const;
  // The first move after `first` whose page does not lie behind the one before it where they come from, or lies at
  // `limit` or beyond: the driver takes the pages before it out of their addresses in one call.
  size_t EndOfRow(size_t first, Address limit) const;
};

// The window of addresses that needs the fewest new bytes, filled with free pages first. REQUIRES: no free block that
// the stream may take at once holds the request (Heap::Unify).
Expansion PlanExpansion(const Heap& heap, const Pages& pages, const ExpansionRequest& request);

// The same memory is made in pages of at most so many bytes.
void CutPages(uint64_t page_bytes, Expansion& expansion);

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_ENGINE_EXPANSION_H_
