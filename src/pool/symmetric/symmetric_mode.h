// Symmetric pools: equal offsets on every rank of the home communicator, registered as windows.
//
// Made, grown, registered and shrunk only in calls that every rank makes; in between an allocation takes what is there
// or is exhausted.
#ifndef COMMPOOL_SRC_POOL_SYMMETRIC_SYMMETRIC_MODE_H_
#define COMMPOOL_SRC_POOL_SYMMETRIC_SYMMETRIC_MODE_H_

#include <atomic>
#include <memory>
#include <vector>

#include "src/engine/symmetric_engine.h"
#include "src/pool/pool_mode.h"
#include "src/pool/segments/segment_store.h"
#include "src/pool/symmetric/collective.h"
#include "src/pool/symmetric/exhaustion.h"
#include "src/pool/symmetric/graph_blocks.h"
#include "src/pool/symmetric/loss_watch.h"
#include "src/pool/symmetric/several_pools.h"
#include "src/pool/symmetric/symmetric_registrar.h"

namespace commpool::internal {

std::unique_ptr<engine::SymmetricEngine> MakeSymmetricEngine(const PoolConfiguration& configuration,
                                                             uint64_t granularity);

class SymmetricMode final : public PoolMode {
 public:
  SymmetricMode(PoolBasis& basis, GraphCaptures& captures, BlockStore& blocks, SegmentStore& segments,
                const Communicator& home);

  // The rest of creation, collective over the channel to the ranks of home: every rank must be able to make windows,
  // and home is the first to be registered with.
  Status Open(std::unique_ptr<AgreementChannel> channel, const Status& readiness);

  uint64_t home_id() const override { return home_id_.load(std::memory_order_acquire); }
  ncclComm_t home() const override {
    const bool reached = ties_.load(std::memory_order_acquire) == Ties::kHome;
    return reached ? home_handle_.load(std::memory_order_acquire) : nullptr;
  }

  Result<CUdeviceptr> Allocate(uint64_t bytes, StreamKey stream) override;
  Result<engine::Freed> FreeInEngine(CUdeviceptr address) override COMMPOOL_REQUIRES(blocks_.mutex());
  bool EndsWithItsFree(CUdeviceptr address) const override { return !graph_blocks_.Has(address); }
  void AfterFree() override {}  // shrinking is collective
  void ForgetStream(StreamKey stream) override;

  SymmetricMode* AsSymmetric() override { return this; }

  Status Reserve(uint64_t bytes) override { return ReserveTogether({this}, bytes); }
  Result<uint64_t> Reclaim() override;
  Result<uint64_t> Trim(uint64_t keep_bytes) override;
  uint64_t ReleaseUnused() override { return 0; }
  Status Verify() override { return VerifyTogether({this}); }
  Status Close() override;
  Status Sleep(const SleepRequest& request) override;
  Status Wake() override;
  void AfterDestroy() override;
  void BeforeAbandon() override { StopListening(); }

  Status CheckCapture() const override;

  Status RegisterWith(ncclComm_t communicator) override;
  Result<uint64_t> RegisterPending() override { return uint64_t{0}; }  // reserve registers what it makes
  Status Deregister(ncclComm_t communicator) override;
  Status Rehome(ncclComm_t communicator) override;
  int LostRank() const override { return losses_.first(); }
  Status AbandonCommunicator(ncclComm_t communicator, CommunicatorLife life) override;

 private:
  // Whether calls can still reach the other ranks.
  enum class Ties { kHome, kAbandoned };

  // The clean end without the other ranks: memory goes back, addresses stay out of use, for a rank that lives on may
  // not have let go of what was there.
  Status CloseAlone() COMMPOOL_REQUIRES(segments_.collective());
  Status CheckNoLiveBlocks(const char* call) const;
  // What other ranks have not freed, or may not have: no round will say so any more.
  void ApplyOwnFrees();
  // Nobody uses the memory any more, as far as this rank alone can tell.
  Status SettleAlone() COMMPOOL_REQUIRES(segments_.collective());
  void EndClose() COMMPOOL_REQUIRES(segments_.collective());
  // Nothing is heard of the other ranks, or told to them, any more.
  void StopListening();
  // Nothing ties the memory to its old home: frees take effect that no other rank will confirm any more.
  Status LeaveHome() COMMPOOL_REQUIRES(segments_.collective());
  // With the ranks of home, to whom the channel leads by now.
  Status BeginEpoch(const Status& readiness) COMMPOOL_REQUIRES(segments_.collective());
  // The steps of sleeping and waking after their intent, agreed one by one. Where a rank fails all are as before.
  Status FallAsleep(const SleepRequest& request) COMMPOOL_REQUIRES(segments_.collective());
  Status WakeUp() COMMPOOL_REQUIRES(segments_.collective());
  // After every communicator was abandoned: this rank's pool serves on, without windows.
  Status WakeAlone() COMMPOOL_REQUIRES(segments_.collective());
  Status MakeAndRestore() COMMPOOL_EXCLUDES(segments_.growth());
  // What was kept is in place again, or never left.
  void EndWake() COMMPOOL_EXCLUDES(segments_.growth());
  // After a failure in the middle of falling asleep.
  Status StayAwake(const Status& failure) COMMPOOL_REQUIRES(segments_.collective());
  Status RegisterSegments();
  void UndoRegistration();
  void ReleaseAgain() COMMPOOL_EXCLUDES(segments_.growth());
  friend ReservedDeque<MutexLock> LockAll(SymmetricModes pools);
  friend std::vector<PoolProposal> ProposalsOf(const SymmetricModes& pools,
                                               FunctionRef<Proposal(SymmetricMode& pool)> of_pool);
  friend Status ReserveTogether(const SymmetricModes& pools, uint64_t bytes);
  friend Result<std::vector<uint64_t>> ReclaimTogether(const SymmetricModes& pools);
  friend Status VerifyTogether(const SymmetricModes& pools);
  Proposal ProposeToReserve(uint64_t bytes) COMMPOOL_REQUIRES(segments_.collective());
  // Of the segment that a reserve needs, the same on every rank; 0 where free memory does.
  Result<uint64_t> MissingBytes(uint64_t bytes, const Agreed& agreed) const;
  Status CheckRoom(uint64_t segment_bytes, const Agreed& agreed) const;
  // Frees that not every rank has made, or that waited for the device: they count at the pool's end, when no rank has a
  // live block.
  enum class UnmatchedFrees { kKeep, kApply };
  // Deregisters these segments on every rank and gives them back.
  Result<uint64_t> Release(const std::vector<engine::SegmentIndex>& segments, UnmatchedFrees frees)
      COMMPOOL_REQUIRES(segments_.collective());
  Status Unmap(const std::vector<engine::SegmentIndex>& segments, Addresses addresses, uint64_t* released)
      COMMPOOL_EXCLUDES(segments_.growth());
  // A block of a capture that could not be waited for: it is freed again, and goes the way of the graph's others.
  void TakeBackUnserved(const engine::Served& served) COMMPOOL_EXCLUDES(blocks_.mutex());
  ExhaustedPool WhyExhausted(uint64_t requested, uint64_t needed) const COMMPOOL_REQUIRES(blocks_.mutex());

  engine::SymmetricEngine& engine() const COMMPOOL_REQUIRES(blocks_.mutex()) {
    return blocks_.engine<engine::SymmetricEngine>();
  }

  PoolBasis& basis_;
  GraphCaptures& captures_;
  BlockStore& blocks_;
  SegmentStore& segments_;
  Communicator home_ COMMPOOL_GUARDED_BY(segments_.collective());
  std::atomic<ncclComm_t> home_handle_;  // home_'s, for those who may not wait for a collective call
  std::atomic<uint64_t> home_id_{0};     // agreed on by the ranks of home
  std::atomic<Ties> ties_{Ties::kHome};
  GraphBlocks graph_blocks_;
  Collective collective_;
  SymmetricRegistrar registrar_;
  LossWatch losses_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SYMMETRIC_SYMMETRIC_MODE_H_
