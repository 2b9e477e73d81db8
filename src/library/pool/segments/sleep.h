// Sleeping: how a pool of any mode falls asleep and wakes. The ranks agree on each step. Rule 5 holds: quiesce,
// deregister, unmap; waking maps, then registers. Where a step fails on one rank the pool is as before on all.
#pragma once

#include "commpool/status.h"
#include "src/library/base/function_ref.h"
#include "src/library/base/progress.h"
#include "src/library/pool/options.h"
#include "src/library/pool/segments/segment_store.h"

namespace commpool::internal {

// One step of a call that all ranks make together. Lives only during the call: its functions may refer to the caller's
// frame. Collective::Run makes it together with the other ranks, Alone without them.
struct PoolStep {
  const char* name = nullptr;                       // such as "registering with a communicator"
  FunctionRef<Status()> act;                        // this rank's part
  FunctionRef<void(const Status& mine)> undo = {};  // runs on every rank, where one failed
};
// Carries out a step, and returns its result on all ranks. GrowingMode passes Alone, SymmetricMode the Runner of its
// Collective.
using StepRunner = FunctionRef<Status(const PoolStep& step)>;
// For a pool without other ranks. `call`: for messages, such as "sleep".
inline auto Alone(const PoolBasis& basis, const char* call) {
  return [&basis, call](const PoolStep& step) -> Status {
    const Status mine = step.act();
    if (!mine.ok() && step.undo) step.undo(mine);
    return basis.Named(mine.under(call));
  };
}

// What the other pools of a call do while one has nothing left that can fail, and its part can still be undone.
using OtherPoolsOfCall = FunctionRef<Status()>;

// REQUIRES: the pool's collective lock, during its whole life. GrowingMode and SymmetricMode make one for each sleep
// and each wake; it keeps no state between them. It owns nothing. A step takes the growth lock for itself. None is held
// in a round, which may last until the deadline.
class Sleeping : PoolParts {
 public:
  // `run` must outlive it.
  Sleeping(const PoolParts& parts, StepRunner run) : PoolParts(parts), run_(run) { basis_.collective.AssertHeld(); }

  // kNotSupported where the backing cannot separate memory and addresses. kFailedPrecondition where the pool does not
  // serve, a stream of its device captures, or graphs may hold memory that NCCL has registered unseen.
  static Status CheckMaySleep(const PoolBasis& basis, const SegmentStore& segments, const SleepRequest& request);
  // kFailedPrecondition where the pool is not asleep, or a stream of its device captures.
  static Status CheckMayWake(const PoolBasis& basis, const SleepRequest& request);

  // FallAsleep: from now on the pool serves nobody, and threads' caches serve nobody from it. `others`: what the other
  // pools of the call do, once this one has nothing left that can fail; where they fail it stays awake. REQUIRES:
  // CheckMaySleep was OK, on all ranks.
  Status FallAsleep(const SleepRequest& request, OtherPoolsOfCall others);
  // kFailedPrecondition, and the pool sleeps on, where windows came elsewhere and the request does not accept that.
  // `others`: likewise, where they fail it sleeps on.
  Status WakeUp(const SleepRequest& request, OtherPoolsOfCall others);

 private:
  // Waits for everybody who may use the memory, and copies what is kept. Besides the host's copies it changes nothing
  // of the pool.
  Status QuiesceAndKeep(const SleepRequest& request);
  Status AwaitAndKeep(const SleepRequest& request) COMMPOOL_REQUIRES(kGrowthLock);
  // After a failure in the middle of falling asleep: the pool serves again. Returns `failure`, with what went wrong on
  // the way back.
  Status StayAwake(const Status& failure);
  // Registers all segments again, with every communicator that the set of registrations remembers.
  Status Register();
  // kFailedPrecondition where a window is not where it was.
  Status CheckReturned() const;
  // Ends all registrations; the set remembers the communicators.
  Status Deregister();
  // Makes memory with the kept blocks in it. A pool without other ranks asks the other pools and allocators once where
  // the device is full.
  Status MakeMemory();
  // After a failure in the middle of waking: the pool sleeps on. Kept copies stay on the host, so the next wake has
  // them.
  void ReleaseAgain();
  // The same once it is registered.
  void SleepOn();
  // Everything kept is in place again, or never left it.
  void ServeAgain();
  // Unmaps all memory. Where it fails the memory is mapped as before.
  Status UnmapAll() COMMPOOL_REQUIRES(kGrowthLock);
  // Maps again what UnmapAll unmapped, with its contents.
  Status MapAll() COMMPOOL_REQUIRES(kGrowthLock);
  // Releases the memory and its room; addresses and books stay. Cannot be undone, so it comes last in a sleep.
  void ReleaseUnmapped() COMMPOOL_REQUIRES(kGrowthLock);
  // Makes and maps memory at the same addresses, and copies kept blocks back. Where it fails it releases the memory
  // again, and no copy runs any more.
  Status WakeMemory();
  // Makes and maps memory, piece by piece, and starts the copies of each.
  Status WakeSegments(Progress& progress) COMMPOOL_REQUIRES(kGrowthLock);
  // Tells the emulator, which then reports a program that uses memory that sleeps.
  void Tell(bool asleep) const;

  const StepRunner run_;
};

}  // namespace commpool::internal
