// A pool and another allocator take turns with the same trace, on one core of one process. A core's speed changes by
// half from process to process and from minute to minute, but not between two turns of a millisecond. One thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "tools/cli/median.h"
#include "tools/cli/replay/allocator.h"
#include "tools/cli/solo_device.h"
#include "tools/traces/trace.h"

namespace commpool::cli {

struct AlternationMeasures {
  std::vector<double> pool_ns;  // an event whose call took less than 20 us; one value for each round
  std::vector<double> other_ns;
  std::vector<double> ratios;       // pool / other, one for each round
  std::vector<double> wall_ratios;  // the same over all calls
  double pool_long_us = 0;          // the longer calls' time in one pass through the timed half
  double other_long_us = 0;
};

// Whether the pool takes less time than the other, if the rounds can tell.
enum class Outcome { kBelow, kAbove, kUndecided };
Outcome OutcomeOf(const Spread& ratio);

// Both play the whole trace once, then again and again, timed in its second half, for about `seconds` or until the
// outcome is sure. A round is a twelfth of that half. In it turns of 64 events alternate: a b, b a, a b. Both
// allocators' blocks live at once, each on streams of its own.
Result<AlternationMeasures> Alternate(SoloDevice& device, const Trace& trace, ReplayedAllocator& pool,
                                      ReplayedAllocator& other, double seconds);

struct AlternationRow {
  std::string name;
  size_t events = 0;
  AlternationMeasures measures;
  std::string failed;  // why there are no measures
};

nlohmann::json ToJson(const AlternationRow& row);
void PrintTable(const std::vector<AlternationRow>& rows);

}  // namespace commpool::cli
