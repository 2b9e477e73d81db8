// Reserve, reclaim, trim and close of a symmetric pool, each a collective call.
#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/pool/symmetric/symmetric_mode.h"

namespace commpool::internal {

namespace {

// A pool that grows by one segment, together with other pools of this rank, and how far it is. Every rank makes the
// segments before any rank calls NCCL, and registers them before any rank serves from them. All these pools grow, or
// none. It lives in the frame of the call.
struct GrowingPool {
  // Parts of one symmetric pool, whose collective lock the call holds.
  const PoolBasis& basis;
  BlockStore& blocks;
  SegmentStore& segments;
  Collective& collective;
  const uint64_t bytes;
  NewSegments made = {};  // one segment, until it is adopted
  // Valid once the memory is made on all ranks.
  engine::SegmentIndex index = 0;
  Status status = {};                                        // the result of this rank's last step
  SegmentBook::Aside aside = SegmentBook::Aside::kUnpinned;  // how to set it aside, if needed

  SegmentToRegister segment() const { return {index, made.front()->address(), made.front()->bytes()}; }
};
using GrowingPools = std::vector<GrowingPool>;

// Acts on one pool after the other, and stops at a failure: otherwise this rank would call NCCL for a later pool while
// the other ranks call it for the failed one. Does nothing where an earlier act failed.
void UntilOneFails(GrowingPools& pools, Status (*act)(GrowingPool& pool)) {
  if (std::ranges::any_of(pools, [](const GrowingPool& pool) { return !pool.status.ok(); })) return;
  for (GrowingPool& pool : pools) {
    // Later pools keep the status OK, although they have not acted.
    pool.status = act(pool);
    if (!pool.status.ok()) return;
  }
}

// Replaces this rank's results by those of all ranks.
Status AgreeOnGrowth(GrowingPools& pools, FunctionRef<std::string(const GrowingPool& pool)> step) {
  std::vector<PoolOutcome> outcomes;
  for (GrowingPool& pool : pools) outcomes.push_back({pool.collective, step(pool), pool.status});
  // One round for all pools.
  const Status all = Collective::AgreeOnSteps(outcomes);
  for (size_t place = 0; place < pools.size(); ++place) pools[place].status = std::move(outcomes[place].status);
  return all;
}

// Takes room before memory, so that pools which grow at the same time stay under the device's limit together.
Status Make(GrowingPool& pool) {
  MutexLock growth(pool.basis.growth());
  Room room = COMMPOOL_TRY(pool.segments.room.Take(pool.bytes));
  NewSegment made = COMMPOOL_TRY(pool.segments.maker.Make(pool.bytes, std::move(room)));
  pool.made.push_back(std::move(made));
  return Status();
}

// Ends this rank's windows, and agrees on that: all ranks have ended theirs before any rank unmaps. A pool that fails
// does not stop the others.
void UndoRegistrations(GrowingPools& pools) {
  for (GrowingPool& pool : pools) {
    pool.status = pool.segments.registrations.DeregisterSegment(pool.index);
    // NCCL still holds it on this rank.
    if (!pool.status.ok()) pool.aside = SegmentBook::Aside::kPinned;
  }
  static_cast<void>(AgreeOnGrowth(pools, [](const GrowingPool&) { return std::string("undoing the registration"); }));
  // If one rank could not undo, or is lost, a peer or NCCL may still hold this memory.
  for (GrowingPool& pool : pools) {
    if (!pool.status.ok()) pool.segments.book.SetAside(std::move(pool.made), pool.aside);
  }
}

// REQUIRES: the pools' collective locks. By value: what is left of `made` after a failure is released at the end.
Status GrowTogether(GrowingPools pools) {
  const auto named = [](const char* what) {
    return [what](const GrowingPool& pool) { return std::string(what) + " a segment of " + FormatBytes(pool.bytes); };
  };
  // A failure is undone up to the last agreement. After it every rank has all windows.
  // Round two, after that of the call itself: memory. Where a rank has none, `made` goes back with this frame, and no
  // rank has called NCCL.
  UntilOneFails(pools, Make);
  COMMPOOL_TRY(AgreeOnGrowth(pools, named("making")));
  // The numbers that Adopt will get: registrations name the segments before the engines know them.
  for (GrowingPool& pool : pools) pool.index = pool.blocks.Ask(&engine::SymmetricEngine::SegmentsEver);
  // Round three: windows with every communicator, by one collective call of NCCL for each. NCCL waits in it for the
  // other ranks, so every rank comes here for the same pools, in the same order.
  UntilOneFails(pools, [](GrowingPool& pool) { return pool.segments.registrations.RegisterSegment(pool.segment()); });
  // Libraries beside NCCL, once NCCL has been called for all pools. A library may refuse on one rank alone, and a rank
  // that stopped there would keep the others waiting in NCCL's call for the next pool.
  UntilOneFails(pools, [](GrowingPool& pool) {
    return pool.segments.registrations.registrars().RegisterLacking({pool.segment()}).status();
  });
  const Status registered = AgreeOnGrowth(pools, named("registering"));
  if (!registered.ok()) {
    UndoRegistrations(pools);
    return registered;
  }
  for (GrowingPool& pool : pools) {
    MutexLock growth(pool.basis.growth());
    // All ranks have the windows, so from here on the memory may serve. No round follows: nothing can fail here.
    pool.segments.maker.Adopt(std::move(pool.made.front()));
  }
  return Status();
}

}  // namespace

std::deque<MutexLock> SymmetricMode::LockAll(const SymmetricModes& pools) {
  std::vector<Mutex*> mutexes;
  for (const SymmetricMode* const pool : pools) mutexes.push_back(&pool->basis_.collective);
  return LockInOrder(std::move(mutexes));
}

std::vector<PoolProposal> SymmetricMode::ProposalsOf(const SymmetricModes& pools,
                                                     FunctionRef<Proposal(SymmetricMode& pool)> of_pool) {
  std::vector<PoolProposal> proposals;
  for (SymmetricMode* const pool : pools) proposals.push_back({pool->collective_, of_pool(*pool)});
  return proposals;
}

// Decides by what all ranks know alike: the sequence, the options, and what they have just agreed on. What only this
// rank knows would let the ranks go different ways.
Result<uint64_t> SymmetricMode::MissingBytes(uint64_t bytes, const Agreed& agreed) const {
  if (blocks_.Ask(&engine::SymmetricEngine::CanServe, bytes)) return uint64_t{0};
  // Only growth needs registrations that all ranks have alike.
  if (!agreed.findings.status.ok()) return basis_.Named(agreed.findings.status);
  // The option segment_bytes is the least size of a segment.
  const uint64_t least = std::max(bytes, basis_.configuration.segment_bytes);
  const std::optional<uint64_t> segment_bytes = CheckedRoundUp(least, agreed.granularity);
  if (!segment_bytes)
    return InvalidArgument(basis_.title, ": reserve of ", bytes,
                           " bytes overflows: probably a negative or uninitialised size");
  // The rank with the least memory decides for all of them.
  const bool fits_all_ranks = *segment_bytes <= agreed.least_memory_left;
  if (fits_all_ranks && segments_.room.FitsOwnLimit(*segment_bytes)) return *segment_bytes;
  const std::string refused = basis_.title + ": reserve of " + FormatBytes(*segment_bytes);
  if (!fits_all_ranks) {
    return OutOfMemory(refused, ": rank ", agreed.rank_with_least_memory, " has only ",
                       FormatBytes(agreed.least_memory_left), " left");
  }
  return OutOfMemory(refused, " would exceed its limit of ", FormatBytes(basis_.configuration.limit_bytes));
}

Status SymmetricMode::Reserve(uint64_t bytes) {
  const nvtx::Range range = basis_.Shown("reserve");
  return ReserveTogether({this}, bytes);
}

// One agreement serves all pools. Then each pool that lacks memory takes part in the growth, on every rank the same
// ones.
Status SymmetricMode::ReserveTogether(const SymmetricModes& pools, uint64_t bytes) {
  const std::deque<MutexLock> locks = LockAll(pools);
  const std::vector<Agreed> agreed =
      COMMPOOL_TRY(Collective::Begin(ProposalsOf(pools, [&](SymmetricMode& pool) -> Proposal {
        pool.basis_.collective.AssertHeld();
        Status readiness = pool.basis_.CheckOpen();
        if (readiness.ok() && bytes == 0) readiness = InvalidArgument(pool.basis_.title, ": reserve of 0 bytes");
        return {.call = CollectiveCall::kReserve, .bytes = bytes, .readiness = readiness, .judge = pool.JudgeHeld()};
      })));
  std::vector<GrowingPool> growing;
  for (size_t place = 0; place < pools.size(); ++place) {
    SymmetricMode& pool = *pools[place];
    const uint64_t missing = COMMPOOL_TRY(pool.MissingBytes(bytes, agreed[place]));
    if (missing > 0) growing.push_back({pool.basis_, pool.blocks_, pool.segments_, pool.collective_, missing});
  }
  // The same on every rank, so no rank waits for a growth.
  if (growing.empty()) return Status();
  const ContextGuard current = pools.front()->basis_.MakeCurrent();
  return GrowTogether(std::move(growing));
}

// Nothing but the agreement: Begin applies the frees that every rank has offered.
Result<std::vector<uint64_t>> SymmetricMode::ReclaimTogether(const SymmetricModes& pools) {
  const std::deque<MutexLock> locks = LockAll(pools);
  std::vector<uint64_t> pending(pools.size());
  for (size_t place = 0; place < pools.size(); ++place) {
    // Freed on this rank, and free for nobody yet.
    pending[place] = pools[place]->blocks_.Ask(&engine::Engine::counters).pending_bytes;
  }
  COMMPOOL_TRY(Collective::Begin(ProposalsOf(pools, [](SymmetricMode& pool) -> Proposal {
    return {.call = CollectiveCall::kReclaim, .readiness = pool.basis_.CheckOpen()};
  })));
  // Other threads may free blocks meanwhile, which then hide a part of what was reclaimed.
  for (size_t place = 0; place < pools.size(); ++place) {
    pending[place] -= std::min(pending[place], pools[place]->blocks_.Ask(&engine::Engine::counters).pending_bytes);
  }
  return pending;
}

Result<uint64_t> SymmetricMode::Reclaim() {
  const nvtx::Range range = basis_.Shown("reclaim");
  const std::vector<uint64_t> reclaimed = COMMPOOL_TRY(ReclaimTogether({this}));
  return reclaimed.front();
}

Status SymmetricMode::Verify() {
  const nvtx::Range range = basis_.Shown("verify");
  return VerifyTogether({this});
}

// An agreement compares the ranks' sequences in any case, so nothing else is to do. It adds nothing to the sequence.
Status SymmetricMode::VerifyTogether(const SymmetricModes& pools) {
  const std::deque<MutexLock> locks = LockAll(pools);
  const auto verify = [](SymmetricMode& pool) -> Proposal {
    return {.call = CollectiveCall::kVerify, .readiness = pool.basis_.CheckOpen()};
  };
  return Collective::Begin(ProposalsOf(pools, verify)).status();
}

// Called where no rank has a registration of the segments any more, or no other rank is left.
Result<uint64_t> SymmetricMode::Unmap(const std::vector<engine::SegmentIndex>& segments, Addresses addresses) {
  const ContextGuard current = basis_.MakeCurrent();
  MutexLock growth(basis_.growth());
  uint64_t released = 0;
  const Status first = FirstFailureOf(segments, [&](engine::SegmentIndex index) -> Status {
    basis_.growth().AssertHeld();
    const uint64_t gone = COMMPOOL_TRY(segments_.maker.ReleaseOne(index, addresses));
    released += gone;
    if (gone != 0) return Status();
    // The segments were free when the ranks agreed, and their frees cannot be taken back.
    return FailedPrecondition(basis_.title, ": another thread allocated during a collective call");
  });
  if (!first.ok()) return first;
  return released;
}

// For trim and close, whose segments every rank has chosen alike. A failure to unmap peers' memory does not keep the
// registrations from ending.
Status SymmetricMode::EndWindows(const std::vector<engine::SegmentIndex>& segments) {
  basis_.collective.AssertHeld();
  const Status unmapped = ForgetPeers(segments);
  const Status deregistered = segments_.Deregister(segments);
  return deregistered.ok() ? unmapped : deregistered;
}

// Some ranks have ended their windows, and no block may lie where only some have one.
Status SymmetricMode::ServeOn(const std::vector<engine::SegmentIndex>& segments, const Status& failure) {
  if (BreaksChannel(failure)) return failure;
  const ContextGuard current = basis_.MakeCurrent();
  Status served = collective_.Run({"deregistering", [&] { return segments_.Deregister(segments); }});
  const auto again = [&] {
    segments_.registrations.ForgetReturn();  // that of an earlier sleep may name segments that are gone
    std::vector<SegmentToRegister> listed = segments_.book.List();
    std::erase_if(listed, [&](const SegmentToRegister& one) { return std::ranges::count(segments, one.index) == 0; });
    return segments_.registrations.RegisterAgain(listed);
  };
  const auto undo = [&](const Status&) { static_cast<void>(segments_.Deregister(segments)); };
  if (served.ok()) served = collective_.Run({"registering again", again, undo});
  if (served.ok() && maps_peers_) served = MapLacking();
  return served.ok() ? failure : Failure(failure.code(), failure.message(), "; then ", served.message());
}

// Registered segments go too, for every rank makes this call.
Result<uint64_t> SymmetricMode::Trim(uint64_t keep_bytes) {
  MutexLock collective(basis_.collective);
  COMMPOOL_TRY(
      collective_.Begin({.call = CollectiveCall::kTrim, .bytes = keep_bytes, .readiness = basis_.CheckOpen()}));
  // Every rank chooses the same segments: Begin has applied the same frees on all of them.
  const std::vector<engine::SegmentIndex> chosen = segments_.maker.ChooseFree(keep_bytes, Pinned::kGo);
  if (chosen.empty()) return uint64_t{0};
  COMMPOOL_TRY(collective_.AwaitDevices());
  const Status ended = collective_.Run({"deregistering", [&] { return EndWindows(chosen); }});
  if (!ended.ok()) return ServeOn(chosen, ended);
  // Every rank has deregistered. Before that, imports of peers would have kept the memory alive; and if its address had
  // been used again, an old window would have led to another block.
  return Unmap(chosen, Addresses::kFree);
}

namespace {

// "the largest: 4 MiB, 2 MiB, 512 B".
std::string DescribeLargest(std::vector<commpool_block> blocks) {
  constexpr size_t kShown = 3;
  std::erase_if(blocks, [](const commpool_block& block) { return block.state != COMMPOOL_BLOCK_LIVE; });
  std::ranges::sort(blocks, std::ranges::greater(), &commpool_block::requested_bytes);
  std::string text = "the largest:";
  for (size_t place = 0; place < std::min(blocks.size(), kShown); ++place) {
    text += (place == 0 ? " " : ", ") + FormatBytes(blocks[place].requested_bytes);
  }
  return text;
}

}  // namespace

// The count of the engine is exact: a symmetric pool has no caches.
Status SymmetricMode::CheckNoLiveBlocks(const char* call) const {
  const uint64_t live = blocks_.Ask(&engine::Engine::counters).allocated_blocks.current;
  if (live == 0) return Status();
  return FailedPrecondition(basis_.title, " still has ", Counted(live, "live block"), ": free them before ", call, " (",
                            DescribeLargest(ListBlocks(basis_, blocks_)), ")");
}

// Breaks the rule that ranks apply the same frees, so only at the end of a pool or of an epoch.
void SymmetricMode::ApplyOwnFrees() {
  MutexLock lock(blocks_.mutex());
  engine().ApplyFrees(engine().LocallyFreed());
}

// For a close after a loss and for rehome. The error of a device that stays busy says what a program can do then.
Status SymmetricMode::AwaitOwnFrees(uint64_t deadline_ms) {
  blocks_.ReleaseParts(captures_.TakeGone());
  const Status status = blocks_.WaitForDevice(deadline_ms);
  if (status.code() != StatusCode::kDeadlineExceeded) return status;
  return Failure(status.code(), status.message(),
                 " If it is a window collective with a rank that is lost, it never ends, and an abort "
                 "or revoke does not help: end the process");
}

// What is left then is this rank's alone. So a close that is repeated needs no other rank.
Status SymmetricMode::EndClose(Addresses addresses, Pinned pinned) {
  losses_.Stop();
  collective_.End();
  Status status = segments_.maker.ReleaseSetAside(pinned);
  KeepFirst(status, Unmap(segments_.book.Indexes(), addresses).status());
  if (status.ok()) basis_.life.EndClose();
  return status;
}

// A failure after the wait leaves the pool closing, and close() may be repeated.
Status SymmetricMode::CloseWithoutRanks(Addresses addresses, Pinned pinned) {
  COMMPOOL_TRY(basis_.device->health().first_error());
  COMMPOOL_TRY(CheckNoLiveBlocks("close()"));
  COMMPOOL_TRY(segments_.CheckMayUnmap());
  const auto await = [&] {
    basis_.collective.AssertHeld();
    return basis_.Named(AwaitOwnFrees(basis_.deadline_ms()).under("close"));
  };
  COMMPOOL_TRY(basis_.life.BeginClose(await));
  ApplyOwnFrees();
  COMMPOOL_TRY(ForgetPeers(segments_.book.Indexes()));
  COMMPOOL_TRY(segments_.registrations.RemoveAll());  // what an earlier call could not end
  return EndClose(addresses, pinned);
}

// May be repeated after a failure; a pool that is closed stays so.
Status SymmetricMode::Close() {
  MutexLock collective(basis_.collective);
  if (basis_.life.closed()) return Status();
  // After a loss: nobody is left to agree with.
  if (HasNoCommunicator()) return CloseWithoutRanks(Addresses::kKeep, Pinned::kGo);
  // The ranks have parted in an earlier call, which left memory here.
  if (collective_.ended()) return CloseWithoutRanks(Addresses::kFree, Pinned::kStay);
  Status readiness = basis_.device->health().first_error();
  if (readiness.ok()) readiness = CheckNoLiveBlocks("close()");
  // All ranks close, or none: a live block on one rank refuses the close on all.
  COMMPOOL_TRY(collective_.Begin({.call = CollectiveCall::kClose, .readiness = readiness}));
  const std::vector<engine::SegmentIndex> segments = segments_.book.Indexes();
  const auto await = [&] {
    basis_.collective.AssertHeld();
    return segments.empty() ? Status() : collective_.AwaitDevices();
  };
  COMMPOOL_TRY(basis_.life.BeginClose(await));
  const auto deregister = [&] {
    ApplyOwnFrees();
    return EndWindows(segments);
  };
  if (!segments.empty()) COMMPOOL_TRY(collective_.Run({"deregistering", deregister}));
  Status status = segments_.registrations.RemoveAll();
  // No rank uses the pool any more. So memory that was set aside only because of other ranks goes too.
  KeepFirst(status, EndClose(Addresses::kFree, Pinned::kStay));
  return status;
}

}  // namespace commpool::internal
