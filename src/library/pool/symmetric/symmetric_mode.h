// SymmetricMode: symmetric pools, with equal offsets on every rank of the home communicator, registered as windows.
// Pool calls it.
//
// Such a pool is made, grows, registers and shrinks only in calls that every rank makes. Between them an allocation
// takes free memory or is exhausted. Its LossWatch hears of lost ranks.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "src/library/base/mutex.h"
#include "src/library/engine/symmetric_engine.h"
#include "src/library/pool/basis/pool_basis.h"
#include "src/library/pool/pool.h"
#include "src/library/pool/symmetric/collective.h"
#include "src/library/registration/domain.h"
#include "src/library/registration/lost_ranks.h"
#include "src/library/registration/registration_set.h"
#include "src/library/sharing/mapped_memory.h"

namespace commpool::internal {

// A pool's knowledge of lost ranks of its home. It answers a program that asks before a launch, and calls the program's
// on_lost_rank. SymmetricMode owns one, and tells it each new home. Lock: its own, a leaf.
//
// Any thread may ask, for two loads. on_lost_rank runs on the thread of the channel that noticed the loss.
class LossWatch {
 public:
  LossWatch(const PoolBasis& basis, const RegistrationSet& registrations)
      : basis_(basis), registrations_(registrations) {}
  ~LossWatch() { Stop(); }

  // Watches the ranks of a new home. SymmetricMode calls it when an epoch begins, with the collective lock.
  void Follow(const std::shared_ptr<LostRanks>& ranks);
  // Once it returns, on_lost_rank is no longer called. May be called more than once. Do not call it from on_lost_rank,
  // for which it waits.
  void Stop();

  // The lost rank that was noticed first; LostRanks::kNone: none. Two loads.
  int first() const {
    const LostRanks* const ranks = followed_.load(std::memory_order_acquire);
    return ranks == nullptr ? LostRanks::kNone : ranks->first();
  }

 private:
  // Whether a collective on the pool's windows may be running. It would wait for the lost rank until the process ends.
  bool MayHang() const;
  // Tells the log and the program. May wait for the device a moment, to know which advice is right.
  void Tell(int rank) const;

  // Both outlive this object. Read on the channel's thread too.
  const PoolBasis& basis_;
  const RegistrationSet& registrations_;
  // The present home's, or null before the first one. Stop leaves it: a closed pool still answers.
  std::atomic<const LostRanks*> followed_{nullptr};
  Mutex mutex_{LockRank::kLeaf};
  // The lost ranks of this home and of earlier ones: a thread that asks takes no lock, and may still read an earlier
  // one.
  std::vector<std::shared_ptr<LostRanks>> kept_ COMMPOOL_GUARDED_BY(mutex_);
  // Of the last one in `kept_`; 0: not listening.
  LostRanks::ListenerNumber listener_ COMMPOOL_GUARDED_BY(mutex_) = 0;
};

class SymmetricMode;
using SymmetricModes = std::vector<SymmetricMode*>;

// Pool owns one. It owns what only symmetric pools have: the members at the end. Each collective call holds the lock
// `collective` until its end. Allocations, frees and questions come from any thread, also beside a collective call.
class SymmetricMode final : public PoolMode {
 public:
  SymmetricMode(const PoolParts& parts, const Communicator& home);

  // The rest of creation, collective over the channel to the ranks of home: every rank must be able to make windows,
  // and home is the first communicator to register with. The factory calls it, before other threads can find the pool.
  // `readiness`: why this rank cannot have the pool, which the others then hear.
  Status Open(std::unique_ptr<AgreementChannel> channel, const Status& readiness);

  // The communicator whose ranks collective calls reach; null where the pool has given it up.
  ncclComm_t home() const { return home_handle_.load(std::memory_order_acquire); }

  // From free memory alone. The ranks call it in one order: each call has its number in the sequence.
  Result<CUdeviceptr> Allocate(uint64_t bytes, StreamKey stream) override;
  void AfterFree() override;

  SymmetricMode* AsSymmetric() override { return this; }
  // The mode of a pool; kNotSupported where it has no ranks. `call`: for the message.
  static Result<SymmetricMode*> Of(const Pool& pool, const char* call);

  // Calls for several symmetric pools of a rank, of one home and one device: they agree in the same rounds, and all go
  // on or none. Then it returns the failure of the first pool.
  static Status ReserveTogether(const SymmetricModes& pools, uint64_t bytes);
  // Returns how many bytes each pool reclaimed.
  static Result<std::vector<uint64_t>> ReclaimTogether(const SymmetricModes& pools);
  static Status VerifyTogether(const SymmetricModes& pools);

  Status Reserve(uint64_t bytes) override;
  Result<uint64_t> Reclaim() override;
  Result<uint64_t> Trim(uint64_t keep_bytes) override;
  // Whether the ranks have made the same calls.
  Status Verify();
  Status Close() override;
  Status Sleep(const SleepRequest& request, OtherPoolsOfCall others) override;
  Status Wake(const SleepRequest& request, OtherPoolsOfCall others) override;
  void AfterDestroy() override;
  void BeforeAbandon() override { StopListening(); }

  // Collective over home. Null on ranks that are not in the communicator: they agree with the others.
  Status RegisterWith(ncclComm_t communicator) override;
  Status Deregister(ncclComm_t communicator) override;
  Status AddRegistrar(const RegistrarRequest& request) override;
  Status RemoveRegistrar(const std::string& name) override;
  // Collective over home, as all that change the mappings. PeersOf asks nobody.
  Status MapPeers();
  Result<PeerPlaces> PeersOf(CUdeviceptr address) const;
  // Collective over the new home, whose other ranks may be making the pool. Needs a pool without live blocks.
  Status Rehome(ncclComm_t communicator);
  // The first rank of home that is known to be lost; -1: none.
  int LostRank() const { return losses_.first(); }
  Status AbandonCommunicator(ncclComm_t communicator, CommunicatorLife life) override;

 private:
  // Whether every communicator was abandoned, so that no call reaches another rank.
  bool HasNoCommunicator() const { return home() == nullptr && segments_.registrations.Communicators().empty(); }
  // Ends the pool in order without the other ranks. kKeep: a rank that lives on may still know what was there.
  Status CloseWithoutRanks(Addresses addresses, Pinned pinned) COMMPOOL_REQUIRES(basis_.collective);
  // `call`: for the message, such as "close()".
  Status CheckNoLiveBlocks(const char* call) const;
  // Applies this rank's deferred frees without the other ranks: no round with them will come any more.
  void ApplyOwnFrees();
  // Waits until nobody uses the memory any more, as far as this rank alone can tell. Waits for the device, so a
  // collective with a lost rank may keep it until the deadline.
  Status AwaitOwnFrees(uint64_t deadline_ms) COMMPOOL_REQUIRES(basis_.collective);
  // The end of both ways to close: no rank is heard or told any more, and all memory goes. The pool is closed once it
  // has.
  Status EndClose(Addresses addresses, Pinned pinned) COMMPOOL_REQUIRES(basis_.collective);
  // Ends the publishing of calls and the watch for lost ranks.
  void StopListening();
  // Whether the pool may leave its home, once nobody uses the memory. It has all of it still.
  Status GetReadyToLeave() COMMPOOL_REQUIRES(basis_.collective);
  // Tells the ranks of a communicator why this pool does not take it as home.
  Status RefuseHome(Communicator& other, const Status& why) const;
  // Begins an epoch with the ranks of home; the channel reaches them already. Where it fails this rank keeps its
  // memory, registered with nobody.
  Status BeginEpoch(CollectiveCall call, const Status& readiness) COMMPOOL_REQUIRES(basis_.collective);
  // Renumbers the segments, smallest number first, as on a rank that makes them now.
  Status Renumber();
  // `all`: the bytes of every segment of the pool, in order.
  Status MakeAndRegister(const std::vector<uint64_t>& all, NewSegments& made) COMMPOOL_REQUIRES(basis_.collective);
  // Makes the segments that this rank has not, in the order of `all`. They go into `made`, and no engine knows them
  // yet.
  Status MakeMissing(const std::vector<uint64_t>& all, NewSegments& made);
  // Makes the first registration of an epoch. Collective over home where the pool has segments.
  Status AddHome(const std::vector<SegmentToRegister>& segments) COMMPOOL_REQUIRES(basis_.collective);
  // kDisagreement where a rank has abandoned a registration that another rank has: growth would wait for it inside
  // NCCL.
  ReportJudge JudgeHeld() COMMPOOL_REQUIRES(basis_.collective);
  // What this rank tells the others about a caller's communicator. Changes nothing. An error becomes this rank's
  // readiness, which the others hear.
  Result<Communicator> Examine(ncclComm_t handle) const COMMPOOL_REQUIRES(basis_.collective);
  // What the other ranks hear of it; empty where this rank passed none.
  DomainReport ReportOf(const Communicator& communicator) const COMMPOOL_REQUIRES(basis_.collective);
  // Every rank calls it, even one that passed no communicator. The members of each new communicator meet over it, and
  // all ranks number the new ones.
  Status Meet(const DomainReport& mine, Communicator* communicator) COMMPOOL_REQUIRES(basis_.collective);
  // Takes the collective locks of a call's pools.
  static std::deque<MutexLock> LockAll(const SymmetricModes& pools);
  // Asks `of_pool` for the proposal of each. REQUIRES: their collective locks.
  static std::vector<PoolProposal> ProposalsOf(const SymmetricModes& pools,
                                               FunctionRef<Proposal(SymmetricMode& pool)> of_pool);
  // The bytes of the segment that a reserve needs, the same on every rank; 0 where free memory is enough. kOutOfMemory
  // where one rank has too little memory: the same on all ranks.
  Result<uint64_t> MissingBytes(uint64_t bytes, const Agreed& agreed) const;
  // This rank's part of deregistering segments. REQUIRES: the device is idle; the caller holds the collective lock.
  Status EndWindows(const std::vector<engine::SegmentIndex>& segments);
  // After a trim that failed on some rank: the segments get their windows back on every rank, or have none. Returns
  // `failure`, with what went wrong on the way back.
  Status ServeOn(const std::vector<engine::SegmentIndex>& segments, const Status& failure)
      COMMPOOL_REQUIRES(basis_.collective);
  // Releases segments that the caller has deregistered on every rank; returns their bytes. Goes on after a failure, so
  // that all ranks have the same segments afterwards, and returns the first.
  Result<uint64_t> Unmap(const std::vector<engine::SegmentIndex>& segments, Addresses addresses)
      COMMPOOL_EXCLUDES(kGrowthLock);
  // Maps those segments from all ranks that are not mapped yet. Every rank calls it.
  Status MapLacking() COMMPOOL_REQUIRES(basis_.collective);
  // For sleep: the addresses stay. Waits for the device; where one rank fails all map again.
  Status UnmapPeers() COMMPOOL_REQUIRES(basis_.collective);
  // Tells the emulator, which then takes graphs over those addresses for what they are.
  void TellOfPeers(bool asleep) const;
  // For segments that end on every rank. REQUIRES: the device is idle.
  Status ForgetPeers(const std::vector<engine::SegmentIndex>& segments) COMMPOOL_REQUIRES(basis_.collective);
  // Waits on the host for the uses of a block outside of the capture of `part`, because they must not become part of
  // the graph. `waits` keeps the uses inside the capture: for them a wait on the device becomes an edge of the graph.
  // kFailedPrecondition for a use in another capture. Called for a served block before the program gets it.
  Status AwaitOutside(engine::Part part, std::vector<engine::StreamUse>* waits) const;
  // Waits on the host for one use. REQUIRES: the thread is in relaxed mode.
  Status Await(const engine::StreamUse& use) const;
  // Such as "has no free block of 3 MiB: ... On every rank: reserve(3145728)", with reclaim() where that may ever help.
  // It uses only the sequence of calls, so it is the same on every rank: no frees, which happen at rank-local moments.
  // `needed`: the block that would serve the request, which a reserve must ask for.
  std::string DescribeExhaustion(uint64_t requested, uint64_t needed) const COMMPOOL_REQUIRES(blocks_.mutex());

  auto& engine() const COMMPOOL_REQUIRES(blocks_.mutex()) { return blocks_.engine<engine::SymmetricEngine>(); }

  // Kept after an abandonment; home_handle_ is null then.
  Communicator home_ COMMPOOL_GUARDED_BY(basis_.collective);
  std::atomic<ncclComm_t> home_handle_;  // home_'s handle while calls can reach its ranks; read without a lock
  Collective collective_;
  // Which communicators the ranks have registered with, and the numbers that they have agreed on.
  DomainTable domains_ COMMPOOL_GUARDED_BY(basis_.collective);
  // Follows the channel of the present home.
  LossWatch losses_{basis_, segments_.registrations};
  // Changed under the collective lock; any thread asks it.
  PeerMappings peers_{basis_.driver, basis_.device->device()};
  // Whether map_peers has succeeded, on all ranks of home: then all unmap as they sleep, and map as they wake.
  bool maps_peers_ COMMPOOL_GUARDED_BY(basis_.collective) = false;
};

}  // namespace commpool::internal
