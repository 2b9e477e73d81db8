// A pool and another allocator under the same trace in turns, on one core of one process: cores change their speed by
// half from process to process, and from minute to minute, but not between two turns of a millisecond. One thread.
#ifndef COMMPOOL_TOOLS_CLI_REPLAY_ALTERNATION_H_
#define COMMPOOL_TOOLS_CLI_REPLAY_ALTERNATION_H_

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
  std::vector<double> pool_ns;  // of an event whose call took less than 20 us; one for each round
  std::vector<double> other_ns;
  std::vector<double> ratios;       // pool / other, of a round
  std::vector<double> wall_ratios;  // of all calls
  double pool_long_us = 0;          // of the longer calls, a pass through the timed half
  double other_long_us = 0;
};

// Whether the pool takes less time than the other, as far as the rounds tell.
enum class Outcome { kBelow, kAbove, kUndecided };
Outcome OutcomeOf(const Spread& ratio);

// Both play the whole trace once; then again and again, timed in its second half, for about `seconds` or until the
// outcome is sure. A round is a twelfth of that half, in which turns of 64 events alternate: a b, b a, a b. Both
// allocators' blocks live at once.
Result<AlternationMeasures> Alternate(SoloDevice& device, const Trace& trace, ReplayedAllocator& pool,
                                      ReplayedAllocator& other, double seconds);

struct AlternationRow {
  std::string name;
  size_t events = 0;
  AlternationMeasures measures;
  std::string failed;  // why there are none
};

nlohmann::json ToJson(const AlternationRow& row);
void PrintTable(const std::vector<AlternationRow>& rows);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_REPLAY_ALTERNATION_H_
