// StreamProgress: asks streams, and events behind those that still work, so that free memory becomes idle memory.
#include "src/library/pool/blocks/stream_progress.h"

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "src/library/base/try.h"

namespace commpool::internal {

// `now` is read before the streams are asked: an answer covers only what was freed by then.
Status StreamProgress::Poll() {
  blocks_.PollFences();
  std::set<StreamKey> streams;
  std::vector<Checkpoint> checkpoints;
  engine::Moment now = 0;
  {
    MutexLock lock(blocks_.mutex());
    checkpoints = std::exchange(checkpoints_, {});
    now = engine().Now();
    streams = engine().StreamsOf();
  }
  Status status;
  for (const StreamKey stream : streams) {
    status = PollStream(stream, now, &checkpoints);
    if (!status.ok()) break;
  }
  PollCheckpoints(checkpoints);
  return status;
}

// A question, and an event behind the stream's work where the answer is no.
Status StreamProgress::PollStream(StreamKey stream, engine::Moment now, std::vector<Checkpoint>* checkpoints) {
  if (!IsReachable(stream)) return Status();  // another thread's own stream, or one that may have died
  if (basis_.MayCapture(stream) || COMMPOOL_TRY(basis_.Captures(stream))) return Status();
  const bool idle = COMMPOOL_TRY(blocks_.IsIdle(stream));
  if (idle) return Status();
  // An event behind the same frees would tell nothing new.
  const bool recorded = std::any_of(checkpoints->begin(), checkpoints->end(), [&](const Checkpoint& checkpoint) {
    return checkpoint.stream == stream && checkpoint.moment == now;
  });
  if (recorded) return Status();
  const FenceId fence = COMMPOOL_TRY(basis_.fences().Record(stream));
  checkpoints->push_back({stream, now, fence});
  return Status();
}

// A checkpoint that has passed tells of the blocks freed before it. Later frees need another one.
void StreamProgress::PollCheckpoints(const std::vector<Checkpoint>& checkpoints) {
  std::vector<FenceId> pending;
  for (const Checkpoint& checkpoint : checkpoints) pending.push_back(checkpoint.fence);
  FenceTable& fences = basis_.fences();
  const std::vector<FenceId> passed = fences.PassedOf(pending);  // the next call reports a sticky error
  {
    MutexLock lock(blocks_.mutex());
    for (const Checkpoint& checkpoint : checkpoints) {
      if (std::find(passed.begin(), passed.end(), checkpoint.fence) == passed.end()) {
        checkpoints_.push_back(checkpoint);
      } else {
        engine().StreamIdle(checkpoint.stream, checkpoint.moment);
      }
    }
  }
  for (const FenceId fence : passed) fences.Retire(fence);
}

// Gives up streams that may have died: no question reaches them.
Status StreamProgress::Await(std::chrono::microseconds limit) {
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

// The caller holds the growth lock, so no poll is under way that has taken checkpoints out.
void StreamProgress::ForgetStream(StreamKey stream) {
  std::vector<Checkpoint> over;
  {
    MutexLock lock(blocks_.mutex());
    for (const Checkpoint& checkpoint : checkpoints_) {
      if (checkpoint.stream == stream) over.push_back(checkpoint);
    }
    std::erase_if(checkpoints_, [&](const Checkpoint& checkpoint) { return checkpoint.stream == stream; });
  }
  for (const Checkpoint& checkpoint : over) basis_.fences().Retire(checkpoint.fence);
}

}  // namespace commpool::internal
