// Plans how an expandable pool makes room for a request: which free pages move where, and which pages are new. And how
// any growing pool makes room or gives memory back, as data: the engine makes the plan under the pool's lock, and the
// pool carries it out without that lock (src/library/pool/growing).
//
// A page is one physical handle, mapped at a place of its own in a territory. It moves only as a whole, and only while
// nobody uses a byte of it. Pure: the functions decide here, and the pool calls the driver. ExpandableEngine calls
// them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
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
  Claimant claimant = {};              // who gets the new pages
  std::optional<Space> unites = {};    // where all free neighbours merge with the new pages, whoever used them
  uint64_t busy_bytes = 0;             // free pages that could have moved if their streams were done

  uint64_t moved_bytes() const;
  uint64_t made_bytes() const;
  // No range of addresses is large enough: add one and plan again.
  bool needs_territory() const { return arriving.empty(); }
  // The end of a row of moves that begins with `first`. The pages of a row lie one behind the other at the source, and
  // below `limit`, so one driver call unmaps them all.
  size_t EndOfRow(size_t first, Address limit) const;
};

// Finds the window of addresses that needs the fewest new bytes, and fills it with free pages first. REQUIRES: no free
// block that the stream may take at once holds the request (Heap::Unify).
Expansion PlanExpansion(const Heap& heap, const Pages& pages, const ExpansionRequest& request);

// Lets the plan make the same memory in pages of at most `page_bytes`.
void CutPages(uint64_t page_bytes, Expansion& expansion);

// How hard growth tries.
enum class Effort {
  kUsual,     // only cheap steps
  kReserve,   // only cheap steps, for reserve(): what it makes stays until a trim
  kPressure,  // free pages move at any cost, after a wait where needed
};

// A request that free memory cannot serve, and facts that the pool knows and the engine does not.
struct GrowthRequest {
  uint64_t bytes = 0;
  StreamKey stream = 0;
  Effort effort = Effort::kUsual;
  Part part = kCommonPart;
  bool capturing = false;      // no stream can be asked or waited for, and nothing is released
  bool moves_eagerly = true;   // pages move before the pool exceeds its slack
  uint64_t room = UINT64_MAX;  // what the limits allow
  uint64_t held_bytes = 0;     // by all pools of the device: above `most_unused` they release unused memory
  uint64_t most_unused = UINT64_MAX;
  std::function<bool(SegmentIndex)> pinned = nullptr;  // segments that must stay; null: none
  bool asked = false;                                  // a plan made the pool ask or wait already

  // By how much the device's pools would exceed `most_unused` if they held `more` bytes more.
  uint64_t Excess(uint64_t more) const { return held_bytes + more - std::min(held_bytes + more, most_unused); }
};

// One call, or one short row of calls, that the pool makes without its lock.
struct GrowthStep {
  enum class Kind {
    kAsk,           // ask which streams are done
    kAwait,         // ask repeatedly, until all are done or the time is over
    kAwaitDevice,   // wait for all work
    kAddAddresses,  // for an expandable pool: at least the range's bytes
    kRelease,       // a segment, if it is still free
    kMakeSegment,   // of the range's bytes; without room for them, of `least_bytes`
    kMakePage,      // memory without an address
    kUnmap,         // unmap a row of pages from the range
    kMap,           // map the oldest page without an address to the range
    kOpen,          // let the device and its peers use the range
  };
  Kind kind = Kind::kAsk;
  SegmentRange range = {};
  size_t pages = 0;  // kUnmap: in the range
  Space space = Space::kLarge;
  Part part = kCommonPart;
  SegmentIndex segment = 0;
  uint64_t least_bytes = 0;
  uint64_t microseconds = 0;  // for a wait
};

// The steps in order. A step that fails ends the plan.
struct GrowthPlan {
  std::vector<GrowthStep> steps;  // empty where free memory serves by now
  bool again = false;             // plan again after the steps
  Expansion pages = {};           // the pages that the steps make, move and map

  GrowthPlan() = default;
  // A plan of one step, after which the pool plans again.
  explicit GrowthPlan(const GrowthStep& first) : steps{first}, again(true) {}
  // The steps of an expansion. Those that make memory come first: they are the likeliest to fail, and when they do,
  // nothing has moved yet.
  GrowthPlan(Expansion expansion, const Heap& heap);
};

}  // namespace commpool::internal::engine
