// How a pool makes room for a request, and how it gives memory back, as data: its engine plans under the pool's lock,
// the pool carries the steps out outside of it (src/pool/growing), and so does a model of it (tools/cli/replay). Pure.
#ifndef COMMPOOL_SRC_ENGINE_GROWTH_PLAN_H_
#define COMMPOOL_SRC_ENGINE_GROWTH_PLAN_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "src/engine/expansion.h"
#include "src/engine/types.h"

namespace commpool::internal::engine {

// How hard growth tries.
enum class Effort {
  kUsual,     // what is cheap
  kReserve,   // the same, for reserve(): what it makes stays until somebody trims
  kPressure,  // free pages move whatever it costs, after a wait where one is needed
};

// A request that free memory does not serve, and what its pool knows that the engine does not.
struct GrowthRequest {
  uint64_t bytes = 0;
  StreamKey stream = 0;
  Effort effort = Effort::kUsual;
  Part part = kCommonPart;
  bool capturing = false;      // no stream can be asked or waited for, and nothing goes
  bool moves_eagerly = true;   // pages move before the pool exceeds its slack
  uint64_t room = UINT64_MAX;  // that the limits leave
  uint64_t held_bytes = 0;     // by the pools of the device: beyond the next one what lies unused goes
  uint64_t most_unused = UINT64_MAX;
  std::function<bool(SegmentIndex)> pinned = nullptr;  // segments that may not go; null where all may
  bool asked = false;                                  // by the engine: a plan had the pool ask or wait already

  // By how much the device's pools would hold too much with so many more bytes.
  uint64_t Excess(uint64_t more) const { return held_bytes + more > most_unused ? held_bytes + more - most_unused : 0; }
};

struct GrowthStep {
  enum class Kind {
    kAsk,           // which streams are done
    kAwait,         // the same again and again, until all are or the time is over
    kAwaitDevice,   // all work
    kAddAddresses,  // an expandable pool's: of the range's bytes at least
    kRelease,       // a segment, if nobody was served from it meanwhile
    kMakeSegment,   // of the range's bytes; where there is no room for them, of `least_bytes`
    kMakePage,      // memory without an address
    kUnmap,         // a row of pages: out of the range
    kMap,           // the page that was made or unmapped first, of those that have no address: to the range
    kOpen,          // lets the device and its peers use the range
  };
  Kind kind = Kind::kAsk;
  SegmentRange range = {};
  size_t pages = 0;  // in the range
  Space space = Space::kLarge;
  Part part = kCommonPart;
  SegmentIndex segment = 0;
  uint64_t least_bytes = 0;
  uint64_t microseconds = 0;  // of a wait
};

struct GrowthPlan {
  std::vector<GrowthStep> steps;  // none where free memory serves by now
  bool again = false;             // the engine plans again after them
  Expansion pages = {};           // that the steps make, move and map

  GrowthPlan() = default;
  // To be planned again after the step.
  explicit GrowthPlan(const GrowthStep& first) : steps{first}, again(true) {}
  // For pages: memory first, for memory is what runs out, and nothing has changed until it is there.
  GrowthPlan(Expansion expansion, const Heap& heap);
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_ENGINE_GROWTH_PLAN_H_
