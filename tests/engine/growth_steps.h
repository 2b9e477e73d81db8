// The steps of an expandable engine's growth that its property test and the fuzzer make alike. No test framework.
#ifndef COMMPOOL_TESTS_ENGINE_GROWTH_STEPS_H_
#define COMMPOOL_TESTS_ENGINE_GROWTH_STEPS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "src/engine/expandable_engine.h"

namespace commpool::internal::engine {

// What a growth under the pool's lock would do; nothing where free memory serves. `donors` is asked for each plan,
// `new_territory` for addresses that a plan lacks.
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

// A claimed growth fails: the memory of its first `lost` moves is gone, all else stays as it was.
inline void FailGrowth(ExpandableEngine& engine, Expansion plan, uint64_t lost) {
  for (uint64_t number = 0; number < lost; ++number) engine.Lose(plan.moves[number]);
  plan.moves.erase(plan.moves.begin(), plan.moves.begin() + static_cast<int64_t>(lost));
  engine.Unclaim(plan);
}

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_TESTS_ENGINE_GROWTH_STEPS_H_
