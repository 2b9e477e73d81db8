// How a pool falls asleep and wakes, in every mode: step by step, each agreed on where there are other ranks. Rule 5
// holds: quiesce, deregister, unmap; and on waking map, then register. Where a step fails on a rank the pool is as
// before on all.
#ifndef COMMPOOL_SRC_POOL_SEGMENTS_SLEEP_H_
#define COMMPOOL_SRC_POOL_SEGMENTS_SLEEP_H_

#include "commpool/status.h"
#include "src/base/function_ref.h"
#include "src/base/host_failure.h"
#include "src/pool/options.h"
#include "src/pool/segments/segment_store.h"

namespace commpool::internal {

// One step of a call that ranks go through together.
struct PoolStep {
  const char* name = nullptr;                       // "registering with a communicator"
  FunctionRef<Status()> act;                        // this rank's part
  FunctionRef<void(const Status& mine)> undo = {};  // on every rank, where one failed
};
// Carries a step out, and returns what became of it on all ranks.
using StepRunner = FunctionRef<Status(const PoolStep& step)>;
// Where there are no other ranks.
inline constexpr auto kAlone = [](const PoolStep& step) -> Status {
  Status mine = Attempt([&] { return step.act(); });
  if (!mine.ok() && step.undo) step.undo(mine);
  return mine;
};

// REQUIRES: the pool's collective lock, as long as it lives.
class Sleeping {
 public:
  // `run` outlives it.
  Sleeping(PoolBasis& basis, BlockStore& blocks, SegmentStore& segments, StepRunner run)
      : basis_(basis), blocks_(blocks), segments_(segments), run_(run) {}

  // kNotSupported where memory and addresses cannot be parted; kFailedPrecondition where the pool does not serve, a
  // stream of its device is captured, or graphs live that captured with it and may hold collectives.
  static Status CheckMaySleep(const PoolBasis& basis, const SegmentStore& segments, const SleepRequest& request);
  static Status CheckMayWake(const PoolBasis& basis);

  // From here on the pool serves nobody, not from threads' caches either; and again.
  Status FallAsleep(const SleepRequest& request);
  Status WakeUp();

 private:
  Status QuiesceAndKeep(const SleepRequest& request);
  // After a failure in the middle of falling asleep.
  Status StayAwake(const Status& failure);
  Status Register();
  Status Deregister();
  void UndoRegistration();
  void ReleaseAgain();
  // What was kept is in place again, or never left.
  void ServeAgain();
  void Tell(bool asleep) const;

  PoolBasis& basis_;
  BlockStore& blocks_;
  SegmentStore& segments_;
  const StepRunner run_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SEGMENTS_SLEEP_H_
