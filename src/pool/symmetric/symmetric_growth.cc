#include "src/pool/symmetric/symmetric_growth.h"

#include <string>
#include <utility>

#include "src/base/bytes.h"
#include "src/base/host_failure.h"
#include "src/base/host_patience.h"
#include "src/base/try.h"

namespace commpool::internal {

namespace {

using GrowingPools = ReservedVector<GrowingPool>;

// Acts on one pool after the other, and stops at a failure: otherwise this rank would call NCCL for a later pool while
// the other ranks call it for the failed one.
void OneByOne(GrowingPools& pools, Status (*act)(GrowingPool& pool)) {
  for (GrowingPool& pool : pools) {
    pool.status = Attempt([&] { return act(pool); });
    if (!pool.status.ok()) return;
  }
}

// Replaces this rank's results by those of all ranks.
Status AgreeOn(GrowingPools& pools, FunctionRef<std::string(const GrowingPool& pool)> step) {
  ReservedVector<PoolOutcome> outcomes;
  for (GrowingPool& pool : pools) Insist([&] { outcomes.push_back({pool.collective, step(pool), pool.status}); });
  const Status all = Collective::AgreeOn(outcomes);
  for (size_t place = 0; place < pools.size(); ++place) pools[place].status = std::move(outcomes[place].status);
  return all;
}

Status Make(GrowingPool& pool) {
  MutexLock growth(pool.segments.growth());
  Room room = COMMPOOL_TRY(pool.segments.TakeRoom(pool.bytes));
  NewSegment made = COMMPOOL_TRY(pool.segments.Make(pool.bytes, std::move(room)));
  pool.made.push_back(std::move(made));
  return Status();
}

// Registers windows with every communicator.
Status Register(GrowingPool& pool) {
  const NewSegment& made = pool.made.front();
  return pool.segments.registrations().RegisterSegment({pool.index, made->address(), made->bytes()});
}

// Ends this rank's windows, and agrees on that: all ranks have ended theirs before any rank unmaps. A pool that fails
// does not stop the others.
void UndoRegistrations(GrowingPools& pools) {
  for (GrowingPool& pool : pools) {
    pool.status = Attempt([&] { return pool.segments.registrations().DeregisterSegment(pool.index); });
    if (!pool.status.ok()) pool.aside = SegmentStore::Aside::kPinned;
  }
  static_cast<void>(AgreeOn(pools, [](const GrowingPool&) { return std::string("undoing the registration"); }));
  // If one rank could not undo, or is lost, a peer or NCCL may still hold this memory.
  for (GrowingPool& pool : pools) {
    if (!pool.status.ok()) pool.segments.SetAside(std::move(pool.made), pool.aside);
  }
}

}  // namespace

Status GrowTogether(GrowingPools pools) {
  const auto named = [](const char* what) {
    return [what](const GrowingPool& pool) { return std::string(what) + " a segment of " + FormatBytes(pool.bytes); };
  };
  OneByOne(pools, Make);
  COMMPOOL_TRY(AgreeOn(pools, named("making")));
  for (GrowingPool& pool : pools) {
    MutexLock lock(pool.blocks.mutex());
    pool.index = pool.blocks.engine<engine::SymmetricEngine>().SegmentsEver();
  }
  OneByOne(pools, Register);
  const Status registered = AgreeOn(pools, named("registering"));
  if (!registered.ok()) {
    UndoRegistrations(pools);
    return registered;
  }
  for (GrowingPool& pool : pools) {
    MutexLock growth(pool.segments.growth());
    pool.segments.Adopt(std::move(pool.made.front()));
  }
  return Status();
}

}  // namespace commpool::internal
