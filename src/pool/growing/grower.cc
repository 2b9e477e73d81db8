#include "src/pool/growing/grower.h"

#include <utility>

#include "src/base/bytes.h"
#include "src/base/host_failure.h"
#include "src/base/try.h"

namespace commpool::internal {

void Grower::Describe(engine::GrowthRequest& request) const {
  request.capturing = basis_.device->capturing();
  request.moves_eagerly = basis_.configuration.moves == Moves::kEager;
  request.room = segments_.RoomLeft();
  request.held_bytes = segments_.HeldBytes();
  request.most_unused = segments_.CollectionBytes();
  request.pinned = [this](engine::SegmentIndex segment) { return segments_.IsPinned(segment); };
}

Status Grower::Grow(uint64_t bytes, StreamKey stream, Effort effort, engine::Part part) {
  MutexLock lock(segments_.growth());
  COMMPOOL_TRY(basis_.CheckOpen());  // under the lock: if the pool ends, the new memory is released with it
  Growth growth{{.bytes = bytes, .stream = stream, .effort = effort, .part = part}};
  for (;;) {
    bool done = COMMPOOL_TRY(GrowOnce(growth));
    if (done) return Status();
  }
}

Result<bool> Grower::GrowOnce(Growth& growth) {
  Describe(growth.request);
  {
    MutexLock lock(blocks_.mutex());
    Result<engine::GrowthPlan> plan = engine().PlanGrowth(growth.request);
    if (!plan.ok()) return basis_.Named(plan.status());
    growth.plan = std::move(*plan);
  }
  const engine::GrowthPlan& plan = growth.plan;
  if (plan.steps.empty()) return true;  // another thread made room, or streams have finished
  const uint64_t made = plan.pages.made_bytes();
  Room room = COMMPOOL_TRY(made == 0 ? Result<Room>(Room()) : segments_.TakeRoom(made));
  if (!plan.again) {
    MutexLock lock(blocks_.mutex());
    if (!engine().Claim(plan)) {
      const Status open = basis_.CheckOpen();
      return open.ok() ? Result<bool>(false) : Result<bool>(open);
    }
  }
  const Status carried_out = CarryOut(growth);
  if (!carried_out.ok()) {
    if (!plan.again) Undo(growth);
    return carried_out;
  }
  if (plan.again) return false;
  room.Keep();
  PoolEvents::Count(basis_.events.moved_bytes, plan.pages.moved_bytes());
  MutexLock lock(blocks_.mutex());
  engine().Settle(plan);
  return true;
}

Status Grower::CarryOut(Growth& growth) {
  using Kind = engine::GrowthStep::Kind;
  const ContextGuard current = basis_.MakeCurrent();
  for (const engine::GrowthStep& step : growth.plan.steps) {
    const Status done = Attempt([&] {
      segments_.growth().AssertHeld();
      switch (step.kind) {
        case Kind::kAsk:
          return progress_.Poll();
        case Kind::kAwait:
          return progress_.Await(std::chrono::microseconds(step.microseconds));
        case Kind::kAwaitDevice:
          return blocks_.WaitForDevice();
        default:
          return Do(step, growth);
      }
    });
    if (!done.ok()) return done;
  }
  return Status();
}

engine::EngineOptions GrowingEngineOptions(const PoolConfiguration& configuration, uint64_t granularity) {
  const bool pages = configuration.mode == Mode::kExpandable;
  engine::EngineOptions options = pages ? engine::ExpandableOptions() : engine::FixedOptions();
  options.alignment = configuration.alignment_bytes;
  options.granularity = granularity;
  options.segment_bytes = configuration.segment_bytes;
  if (configuration.segment_bytes != 0) options.page_bytes = RoundUp(configuration.segment_bytes, granularity);
  return options;
}

}  // namespace commpool::internal
