// How a pool makes room for a request or gives memory back, as data. The engine makes the plan under the pool's lock.
// The pool carries it out without that lock (src/library/pool/growing). Pure.
#ifndef COMMPOOL_SRC_LIBRARY_ENGINE_GROWTH_PLAN_H_
#define COMMPOOL_SRC_LIBRARY_ENGINE_GROWTH_PLAN_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "src/library/engine/expansion.h"
#include "src/library/engine/types.h"

namespace commpool::internal::engine {

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
  uint64_t Excess(uint64_t more) const { return held_bytes + more > most_unused ? held_bytes + more - most_unused : 0; }
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
  size_t pages = 0;  // in the range
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

#endif  // COMMPOOL_SRC_LIBRARY_ENGINE_GROWTH_PLAN_H_
