// Calls of an engine, and steps of an expandable one's growth, that property tests and fuzzer share, and the state for
// them. Without a test framework.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "src/library/engine/block.h"
#include "src/library/engine/expandable_engine.h"
#include "src/library/engine/types.h"

namespace commpool::internal::engine {

inline std::vector<StreamKey> StreamsOf(const std::vector<MissingFence>& missing) {
  std::vector<StreamKey> streams;
  for (const MissingFence& fence : missing) streams.push_back(fence.stream);
  return streams;
}

// The fence of the stream that the block's last free misses; one of no free where it misses none.
template <typename Engine>
MissingFence MissingOf(const Engine& engine, Address address, StreamKey stream) {
  MissingFence missing{address, stream, kNoMoment};
  const Block* const block = engine.heap().Find(address);
  for (const Use& use : block == nullptr ? Uses() : block->uses) {
    if (use.stream == stream && use.fence_missing()) missing.freed_at = use.missing_since;
  }
  return missing;
}

// Fences that frees asked for and no stream has got yet.
class MissingFences {
 public:
  struct Attached {
    MissingFence missing;
    Fence fence = kNoFence;
  };

  bool empty() const { return missing_.empty(); }
  size_t size() const { return missing_.size(); }
  // The fence attached last; kNoFence before the first.
  Fence last() const { return last_; }

  void Add(const std::vector<MissingFence>& missing) {
    missing_.insert(missing_.end(), missing.begin(), missing.end());
  }

  // Attaches a new fence for the one at `place`.
  template <typename Engine>
  Attached Attach(Engine& engine, uint64_t place) {
    const Attached attached{missing_.at(place), ++last_};
    missing_.erase(missing_.begin() + static_cast<int64_t>(place));
    engine.AttachFence(attached.missing, attached.fence);
    return attached;
  }

 private:
  std::vector<MissingFence> missing_;
  Fence last_ = kNoFence;
};

template <typename Engine>
void RemoveIdleSegments(Engine& engine) {
  for (const SegmentIndex segment : engine.WhollyFreeSegments()) {
    if (engine.IsIdle(segment)) engine.RemoveSegment(segment);
  }
}

// Plans what a growth under the pool's lock would do; nothing where free memory serves. Calls `donors` for each plan,
// and `new_territory` where a plan lacks addresses.
inline std::optional<Expansion> PlanGrowth(ExpandableEngine& engine, uint64_t bytes, StreamKey stream,
                                           const std::function<Donors()>& donors,
                                           const std::function<SegmentRange(const Grow&)>& new_territory) {
  for (;;) {
    const Grow growth = engine.GrowthFor(bytes, stream, Reuse::kSameStream).value();
    if (growth.bytes == 0) return std::nullopt;
    Expansion plan = engine.Plan(bytes, stream, donors()).value();
    if (!plan.needs_territory()) return plan;
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
