#include "src/pool/blocks/stream_progress.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "src/base/try.h"

namespace commpool::internal {

Status StreamProgress::Poll() {
  blocks_.PollFences();
  if (basis_.device->capturing()) return Status();
  const ContextGuard current = basis_.MakeCurrent();
  ReservedVector<StreamKey> streams;
  ReservedVector<Checkpoint> checkpoints;
  engine::Moment now = 0;
  {
    MutexLock lock(blocks_.mutex());
    checkpoints = std::exchange(checkpoints_, {});
    now = engine().Now();
    streams = engine().StreamsInUse();
  }
  for (const StreamKey stream : streams) {
    COMMPOOL_TRY(PollStream(stream, now, &checkpoints));
  }
  return PollCheckpoints(checkpoints);
}

Status StreamProgress::PollStream(StreamKey stream, engine::Moment now, ReservedVector<Checkpoint>* checkpoints) {
  if (!IsReachable(stream)) return Status();        // another thread's own, or one that may have died
  if (basis_.device->capturing()) return Status();  // since this poll began
  const bool idle = COMMPOOL_TRY(blocks_.IsIdle(stream));
  if (idle) return Status();
  const bool recorded = std::any_of(checkpoints->begin(), checkpoints->end(), [&](const Checkpoint& checkpoint) {
    return checkpoint.stream == stream && checkpoint.moment == now;
  });
  if (recorded) return Status();
  const FenceId fence = COMMPOOL_TRY(basis_.device->fences().Record(stream));
  checkpoints->push_back({stream, now, fence});
  return Status();
}

Status StreamProgress::PollCheckpoints(const ReservedVector<Checkpoint>& checkpoints) {
  FenceTable& fences = basis_.device->fences();
  ReservedVector<StreamKey> at_work;  // behind a stream's first that has not passed no other is asked
  for (const Checkpoint& checkpoint : checkpoints) {
    bool passed = false;
    if (std::find(at_work.begin(), at_work.end(), checkpoint.stream) == at_work.end()) {
      bool asked = COMMPOOL_TRY(fences.Passed(checkpoint.fence));
      passed = asked;
      if (!passed) at_work.push_back(checkpoint.stream);
    }
    if (passed) fences.Retire(checkpoint.fence);
    MutexLock lock(blocks_.mutex());
    if (passed) {
      engine().StreamIdle(checkpoint.stream, checkpoint.moment);
    } else {
      checkpoints_.push_back(checkpoint);
    }
  }
  return Status();
}

Status StreamProgress::Await(std::chrono::microseconds limit) {
  const Clock::time_point begin = Clock::now();
  for (int polls = 0;; ++polls) {
    COMMPOOL_TRY(Poll());
    {
      MutexLock lock(blocks_.mutex());
      const ReservedVector<StreamKey> streams = engine().StreamsInUse();
      if (std::all_of(streams.begin(), streams.end(), MayHaveDied)) return Status();
    }
    if (polls == 1) PoolEvents::Count(basis_.events.host_waits);
    const Clock::duration waited = Clock::now() - begin;
    if (waited > limit) return Status();
    // Each look costs calls of the driver: they become rarer, so that the answer is late by an eighth at most.
    while (Clock::now() - begin < waited + waited / 8) std::this_thread::yield();
  }
}

void StreamProgress::ForgetStream(StreamKey stream) {
  ReservedVector<Checkpoint> over;
  {
    MutexLock lock(blocks_.mutex());
    for (const Checkpoint& checkpoint : checkpoints_) {
      if (checkpoint.stream == stream) over.push_back(checkpoint);
    }
    std::erase_if(checkpoints_, [&](const Checkpoint& checkpoint) { return checkpoint.stream == stream; });
  }
  for (const Checkpoint& checkpoint : over) basis_.device->fences().Retire(checkpoint.fence);
}

}  // namespace commpool::internal
