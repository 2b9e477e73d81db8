// Grower: one growth from the plan to its end, alike for both kinds of pools; and the grower of fixed pools.
#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/driver/graph_handles.h"
#include "src/library/pool/growing/growing_mode.h"

namespace commpool::internal {

namespace {

// Grows a fixed pool by segments that never move, and releases whole segments. A segment is made, adopted and released
// as a whole, so nothing is ever half done, and Undo has nothing to do.
class FixedGrower final : public Grower {
 public:
  using Grower::Grower;

  // Releases unpinned segments, the largest index first. Registered segments stay: only a call on the communicator's
  // thread may deregister them (rule 1).
  Result<uint64_t> ReleaseHeld(uint64_t keep_bytes, Wait wait) override COMMPOOL_REQUIRES(kGrowthLock) {
    // The promise that reserve() made ends here: segments that it made may go now.
    SetReserved(false);
    blocks_.PollFences();  // a block with a pending fence is not free
    // Some freed blocks open only after a wait for the device, because their streams may have died.
    const bool awaits = wait == Wait::kYes && blocks_.Ask(&engine::Engine::AnyClosedLacksFenceOf, MayHaveDied);
    if (awaits) COMMPOOL_TRY(blocks_.WaitForDevice());
    const std::vector<engine::SegmentIndex> chosen = segments_.maker.ChooseFree(keep_bytes, Pinned::kStay);
    if (chosen.empty()) return uint64_t{0};

    // Other threads allocate during the wait, so a segment that was wholly free may have blocks now. Release only those
    // that are still free.
    COMMPOOL_TRY(wait == Wait::kYes ? blocks_.WaitForDevice() : Poll());
    return segments_.maker.Release(chosen);
  }

 private:
  // Either releases an unused segment, or makes one.
  Status Do(const engine::GrowthStep& step, Growth& growth) override COMMPOOL_REQUIRES(kGrowthLock) {
    if (step.kind == engine::GrowthStep::Kind::kRelease) return segments_.maker.Release({step.segment}).status();
    // Memory of reserve() has no first user, so nobody's stream may order its making.
    const bool reserves = growth.request.effort == Effort::kReserve;
    const auto asked = reserves ? std::nullopt : std::make_optional(growth.request.stream);
    Status status = MakeSegment(step, step.range.bytes, asked);
    // The plan asks for the usual size, and says which size is enough: that one is tried where memory is short.
    const bool less = status.code() == StatusCode::kOutOfMemory && step.least_bytes < step.range.bytes;
    if (less) status = MakeSegment(step, step.least_bytes, asked);
    if (status.ok() && reserves) SetReserved(true);
    return status;
  }

  // `stream`: the stream that asked; none for reserve().
  Status MakeSegment(const engine::GrowthStep& step, uint64_t bytes, std::optional<StreamKey> stream)
      COMMPOOL_REQUIRES(kGrowthLock) {
    // The room that GrowOnce took is 0 for a fixed pool: the plan has segments and no pages.
    Room room = COMMPOOL_TRY(segments_.room.Take(bytes));
    NewSegment made = COMMPOOL_TRY(basis_.Named(segments_.maker.Make(bytes, std::move(room), stream)));
    segments_.maker.Adopt(std::move(made), step.space, step.part);
    return Status();
  }

  // Segments of reserve() serve blocks of every size and stay, because the program asked for them.
  void SetReserved(bool reserved) {
    MutexLock lock(blocks_.mutex());
    engine().SetReserved(reserved);
  }
};

}  // namespace

Result<uint64_t> Grower::Release(uint64_t keep_bytes, Wait wait) {
  const std::shared_ptr<BlockOwner> alive = basis_.owner.lock();  // its last memory may hold the last reference
  MutexLock growth(basis_.growth());
  const Status again = segments_.maker.ReleaseSetAside(Pinned::kStay);  // what an earlier call could not unmap
  Result<uint64_t> released = ReleaseHeld(keep_bytes, wait);
  return again.ok() || !released.ok() ? std::move(released) : again;
}

Result<uint64_t> Grower::ReleaseAtOnce() {
  if (!basis_.growth().TryLock()) return uint64_t{0};
  Result<uint64_t> released = ReleaseHeld(0, Wait::kNo);
  basis_.growth().Unlock();
  return released;
}

// Repeats until the engine needs no step: a plan may be the first part of a growth, or other threads may have taken
// memory that it counted on.
Status Grower::Grow(uint64_t bytes, StreamKey stream, Effort effort, engine::Part part) {
  MutexLock lock(basis_.growth());
  COMMPOOL_TRY(basis_.CheckOpen());  // under the lock: if the pool ends, the new memory is released with it
  // A capture may take nothing but what is known to be idle, and may not ask.
  if (effort == Effort::kReserve && !basis_.device->capturing()) COMMPOOL_TRY(Poll());
  Growth growth{{.bytes = bytes, .stream = stream, .effort = effort, .part = part}};
  recording::Span span = basis_.record.Began(recording::SpanKind::kGrowth, "growth", bytes);
  for (;;) {
    const Result<bool> done = GrowOnce(growth);
    if (!done.ok() || *done) return span.Ended(done.status());
  }
}

// Between the plan and the claim the lock is free, because room under the limits is taken there. So the claim may find
// that the plan no longer holds: then the caller plans again. Plan, room, claim, steps, books, in this order. A failure
// undoes what came before it.
Result<bool> Grower::GrowOnce(Growth& growth) {
  // What the pool knows and the engine does not. Again before each plan, because it changes while the growth waits; it
  // may be out of date when the plan is carried out, and Claim finds that out.
  engine::GrowthRequest& request = growth.request;
  request.capturing = basis_.device->capturing();
  request.moves_eagerly = basis_.configuration.moves == Moves::kEager;
  request.room = segments_.room.Left();
  request.held_bytes = segments_.room.TakenByAll();
  request.most_unused = segments_.room.CollectionBytes();
  request.pinned = [this](engine::SegmentIndex segment) { return segments_.registrations.IsRegistered(segment); };
  {
    MutexLock lock(blocks_.mutex());
    growth.plan = COMMPOOL_TRY(basis_.Named(engine().PlanGrowth(request)));
  }
  const engine::GrowthPlan& plan = growth.plan;
  if (plan.steps.empty()) return true;  // another thread made room, or streams have finished
  const uint64_t made = plan.pages.made_bytes();
  // Without the pool's lock: the account has a lock of its own, and the limit counts what other pools take meanwhile.
  Room room = COMMPOOL_TRY(made == 0 ? Result<Room>(Room()) : segments_.room.Take(made));
  if (!plan.again) {
    MutexLock lock(blocks_.mutex());
    if (!engine().Claim(plan.pages)) {
      // The claim fails where the plan is out of date, and where the pool may not serve any more.
      const Status open = basis_.CheckOpen();
      return open.ok() ? Result<bool>(false) : Result<bool>(open);
    }
  }
  const Status carried_out = CarryOut(growth);
  if (!carried_out.ok()) {
    if (!plan.again) Undo(growth);
    return carried_out;
  }
  // The steps only waited or asked; the claim and the room come with a later plan.
  if (plan.again) return false;
  // From here on the pool owns the pages, and returns their room when it releases them.
  room.Keep();
  PoolEvents::Count(basis_.events.moved_bytes, plan.pages.moved_bytes());
  // Under the lock: a recording that begins meanwhile lists the pages before all of this, or after it.
  MutexLock lock(blocks_.mutex());
  for (const engine::PageMove& move : plan.pages.moves)
    basis_.record.Tell(recording::SegmentGone{.address = move.from, .bytes = move.bytes});
  for (const engine::SegmentRange& range : plan.pages.arriving)
    basis_.record.Tell(recording::SegmentMade{.address = range.address, .bytes = range.bytes});
  engine().Complete(plan.pages);
  return true;
}

// The steps wait and call the driver, so they run without the pool's lock.
Status Grower::CarryOut(Growth& growth) {
  using Kind = engine::GrowthStep::Kind;
  const ContextGuard current = basis_.MakeCurrent();
  const RelaxedCapture relaxed(basis_.driver);  // another thread may capture, unannounced
  for (const engine::GrowthStep& step : growth.plan.steps) {
    // Waits are the same for both kinds of pools; what makes or moves memory is the grower's own.
    switch (step.kind) {
      case Kind::kAsk:
        COMMPOOL_TRY(Poll());
        break;
      case Kind::kAwait:
        COMMPOOL_TRY(Await(std::chrono::microseconds(step.microseconds)));
        break;
      case Kind::kAwaitDevice:
        COMMPOOL_TRY(AwaitDevice());
        break;
      default:
        COMMPOOL_TRY(Do(step, growth));
    }
  }
  return Status();
}

Status Grower::AwaitDevice() {
  Status waited = blocks_.WaitForDevice();
  return waited.code() == StatusCode::kFailedPrecondition ? OutOfMemory(waited.message()) : waited;
}

// `now` is read before the streams are asked: an answer covers only what was freed by then.
Status Grower::Poll() {
  blocks_.PollFences();
  std::set<StreamKey> streams;
  engine::Moment now = 0;
  {
    MutexLock lock(blocks_.mutex());
    now = engine().Now();
    streams = engine().StreamsOf();
  }
  Status status;
  for (const StreamKey stream : streams) {
    status = PollStream(stream, now);
    if (!status.ok()) break;
  }
  PollCheckpoints();
  return status;
}

// A question, and an event behind the stream's work where the answer is no.
Status Grower::PollStream(StreamKey stream, engine::Moment now) {
  if (!IsReachable(stream)) return Status();  // another thread's own stream, or one that may have died
  if (basis_.MayCapture(stream) || COMMPOOL_TRY(basis_.Captures(stream))) return Status();
  if (COMMPOOL_TRY(blocks_.IsIdle(stream))) return Status();
  // An event behind the same frees would tell nothing new.
  const bool recorded = std::any_of(checkpoints_.begin(), checkpoints_.end(), [&](const Checkpoint& checkpoint) {
    return checkpoint.stream == stream && checkpoint.moment == now;
  });
  if (recorded) return Status();
  const FenceId fence = COMMPOOL_TRY(basis_.fences().Record(stream));
  checkpoints_.push_back({stream, now, fence});
  return Status();
}

// A checkpoint that has passed tells of the blocks freed before it. Later frees need another one.
void Grower::PollCheckpoints() {
  std::vector<FenceId> pending;
  for (const Checkpoint& checkpoint : checkpoints_) pending.push_back(checkpoint.fence);
  FenceTable& fences = basis_.fences();
  const std::vector<FenceId> passed = fences.PassedOf(pending);  // the next call reports a sticky error
  const auto has_passed = [&](const Checkpoint& checkpoint) {
    return std::find(passed.begin(), passed.end(), checkpoint.fence) != passed.end();
  };
  {
    MutexLock lock(blocks_.mutex());
    for (const Checkpoint& checkpoint : checkpoints_) {
      if (has_passed(checkpoint)) engine().StreamIdle(checkpoint.stream, checkpoint.moment);
    }
  }
  std::erase_if(checkpoints_, has_passed);
  for (const FenceId fence : passed) fences.Retire(fence);
}

// Gives up streams that may have died: no question reaches them.
Status Grower::Await(std::chrono::microseconds limit) {
  const Clock::time_point begin = Clock::now();
  for (int polls = 0;; ++polls) {
    COMMPOOL_TRY(Poll());
    {
      MutexLock lock(blocks_.mutex());
      const std::set<StreamKey> streams = engine().StreamsOf();
      if (std::all_of(streams.begin(), streams.end(), MayHaveDied)) return Status();
    }
    if (polls == 1) PoolEvents::Count(basis_.events.host_waits);
    const Clock::duration waited = Clock::now() - begin;
    if (waited > limit) return Status();
    // Each question costs driver calls. Ask ever more rarely, so that the answer is at most an eighth late.
    while (Clock::now() - begin < waited + waited / 8) std::this_thread::yield();
  }
}

// Growth uses streams under the growth lock, frees under a RecordingStreams::Scope: both are waited for. Afterwards the
// handle may be gone.
void Grower::ForgetStream(StreamKey stream) {
  MutexLock growth(basis_.growth());
  for (const Checkpoint& checkpoint : checkpoints_) {
    if (checkpoint.stream == stream) basis_.fences().Retire(checkpoint.fence);
  }
  std::erase_if(checkpoints_, [&](const Checkpoint& checkpoint) { return checkpoint.stream == stream; });
  blocks_.ForgetStream(stream);
}

std::unique_ptr<Grower> MakeFixedGrower(const PoolParts& parts) { return std::make_unique<FixedGrower>(parts); }

// The option segment_bytes is the least size of a fixed pool's segments, and the largest size of an expandable pool's
// pages.
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
