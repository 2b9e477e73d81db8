// The steps of an expandable engine's growth that its property test and the fuzzer share. Without a test framework.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "src/library/engine/expandable_engine.h"

namespace commpool::internal::engine {

// Plans what a growth under the pool's lock would do; nothing where free memory serves. Calls `donors` for each plan,
// and `new_territory` where a plan lacks addresses.
inline std::optional<Expansion> PlanGrowth(ExpandableEngine& engine, uint64_t bytes, StreamKey stream,
                                           const std::function<Donors()>& donors,
                                           const std::function<SegmentRange(const Grow&)>& new_territory) {
  for (;;) {
    const Grow growth = engine.GrowthFor(bytes, stream, Reuse::kSameStream).value();
    if (growth.bytes == 0) return std::nullopt;
    Expansion plan = engine.Plan(bytes, stream, donors()).value();
    if (!plan.needs_territory) return plan;
    engine.AddTerritory(new_territory(growth), growth.space);
  }
}

// Lets a claimed growth fail: the memory of its first `lost` moves is gone, everything else is as before.
inline void FailGrowth(ExpandableEngine& engine, Expansion plan, uint64_t lost) {
  for (uint64_t number = 0; number < lost; ++number)
    engine.RemovePage({plan.moves[number].from, plan.moves[number].bytes});
  plan.moves.erase(plan.moves.begin(), plan.moves.begin() + static_cast<int64_t>(lost));
  engine.Unclaim(plan);
}

}  // namespace commpool::internal::engine
