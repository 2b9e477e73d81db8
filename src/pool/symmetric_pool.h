// A symmetric pool: equal offsets on every rank of its home communicator, registered as windows.
//
// Made, grown, registered and shrunk only in calls that every rank makes; in between an allocation takes what is there
// or is exhausted. Every collective call is the same three steps: agree on the intent, act, agree on the outcome, and
// what was done is undone where one rank failed.
#ifndef COMMPOOL_SRC_POOL_SYMMETRIC_POOL_H_
#define COMMPOOL_SRC_POOL_SYMMETRIC_POOL_H_

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "src/pool/exhaustion.h"
#include "src/pool/graph_captures.h"
#include "src/pool/pool_base.h"
#include "src/registration/agreement.h"
#include "src/registration/agreement_channel.h"
#include "src/registration/communicator.h"
#include "src/registration/divergence.h"
#include "src/registration/domain.h"
#include "src/registration/publisher.h"

namespace commpool::internal {

class SymmetricPool final : public PoolBase<engine::SymmetricEngine> {
 public:
  SymmetricPool(PoolParts parts, const Communicator& home, std::unique_ptr<AgreementChannel> channel);

  // The rest of creation, collective: every rank must be able to make windows, and home is the first to be registered
  // with.
  Status Open(const Status& readiness);

  uint64_t home_id() const override { return home_id_; }

  Result<CUdeviceptr> Allocate(uint64_t bytes, StreamKey stream) override;
  Status Reserve(uint64_t bytes) override;
  Result<uint64_t> Reclaim() override;
  Result<uint64_t> Trim(uint64_t keep_bytes) override;
  uint64_t ReleaseUnused() override { return 0; }  // shrinking is collective
  Status Verify() override;
  Status Close() override;
  void Retire() override;
  void Abandon() override;

  Status BeginCapture(CaptureHandle capture, CUstream stream) override;
  void EndCapture(CaptureHandle capture) override;
  void ForgetStream(StreamKey stream) override;

  Status RegisterWith(ncclComm_t communicator) override;
  Result<uint64_t> RegisterPending() override { return uint64_t{0}; }  // reserve registers what it makes
  Status Deregister(ncclComm_t communicator) override;
  Status AbandonCommunicator(ncclComm_t communicator) override;

 private:
  Result<engine::Freed> FreeInEngine(CUdeviceptr address) override COMMPOOL_REQUIRES(mutex_);
  // After each call that the engine took into its sequence.
  void Publish() COMMPOOL_REQUIRES(mutex_);
  void StopPublishing() COMMPOOL_EXCLUDES(mutex_);

  // What this rank brings to a call: its figures as they are now.
  Intent MakeIntent(CollectiveCall call, uint64_t bytes) const;
  // Agrees on a call, and changes nothing.
  Result<Agreed> Agree(CollectiveCall call, uint64_t bytes, const Status& readiness, DomainClaim claim = {});
  // Agrees on a call, lets the frees take effect that every rank has made, and notes the call in the sequence.
  Result<Agreed> Begin(CollectiveCall call, uint64_t bytes, const Status& readiness, DomainClaim claim = {});
  // What every rank said of communicators, where none has abandoned a registration that another has.
  Result<std::vector<DomainClaim>> CheckHeld(const Agreed& agreed) COMMPOOL_REQUIRES(collective_);
  // A communicator of the caller's as this rank will speak of it.
  Result<Communicator> Examine(ncclComm_t handle) const;
  DomainClaim ClaimOf(const Communicator& communicator) const;
  // Meets the other members of new communicators, and numbers them: on all ranks, whether they passed one or not.
  Status Meet(const std::vector<DomainClaim>& claims, Communicator* communicator) COMMPOOL_REQUIRES(collective_);
  // The rest of reserve, where free memory does not suffice: make, agree, register, agree, adopt.
  Status Grow(uint64_t bytes, const Agreed& agreed);
  Status AddMemory(uint64_t segment_bytes);
  // A segment, with room for it under the device's limit; and back, where the step goes no further.
  Result<std::unique_ptr<Segment>> MakeSegment(uint64_t bytes) COMMPOOL_EXCLUDES(growth_);
  void DropSegment(std::unique_ptr<Segment> segment);
  // The one order in which registrations, and the memory under them, end on every rank. Graphs that use them are gone:
  // the intent asked for that.
  Status TearDown(const std::function<Status()>& deregister, const std::function<Status()>& unmap)
      COMMPOOL_REQUIRES(collective_);
  Status Unmap(const std::vector<engine::SegmentIndex>& indexes, uint64_t* released) COMMPOOL_EXCLUDES(growth_);
  // Frees that not every rank has made, or that waited for the device: they count at the pool's end, when no rank has a
  // live block.
  enum class UnmatchedFrees { kKeep, kApply };
  // Deregisters and frees these segments on every rank.
  Result<uint64_t> GiveBack(const std::vector<engine::SegmentIndex>& indexes, UnmatchedFrees frees);
  Exhaustion WhyExhausted(uint64_t requested, uint64_t needed) const COMMPOOL_REQUIRES(mutex_);
  Status CheckRoom(uint64_t segment_bytes, const Agreed& agreed) const;
  uint64_t ReservedBytes() const COMMPOOL_EXCLUDES(mutex_);

  const Communicator home_;
  uint64_t home_id_ = 0;  // agreed on at creation
  // Captures. A block that a capture got is its graph's until the graph is gone: freed, it is not told to the other
  // ranks before, so that no rank reuses it. Where it lies depends on the sequence alone, as ever.
  struct GraphBlock {
    engine::Sequence sequence = 0;
    engine::Part part = engine::kCommonPart;
    bool gone = false;                    // the graph; the block is kept while streams are to fence
    std::vector<StreamKey> streams = {};  // that used it and get their fences then
  };
  // The part of the capture that the stream is in; the common part outside of captures.
  Result<engine::Part> PartOf(StreamKey stream) const;
  // FinishServing for a block that a capture got: what it waits for must not become part of the graph.
  Result<CUdeviceptr> FinishInCapture(engine::Served served, uint64_t requested, StreamKey stream, engine::Part part);
  Status AwaitOutsideCapture(const engine::StreamUse& use);
  // Why captures keep this rank from a call, where they do.
  Status CheckCaptures(CollectiveCall call) const;
  // Blocks of graphs that are gone become like any that was freed.
  void CollectGraphs() COMMPOOL_EXCLUDES(mutex_);
  void KeepGraphsBlocks(std::vector<engine::Sequence>* freed) const COMMPOOL_REQUIRES(mutex_);
  bool IsToldOfFrees(CUdeviceptr address) const override;

  GraphCaptures captures_{driver_};
  std::map<CUdeviceptr, GraphBlock> graph_blocks_ COMMPOOL_GUARDED_BY(mutex_);

  Divergence divergence_;
  std::unique_ptr<Publisher> publisher_ COMMPOOL_GUARDED_BY(mutex_);  // null where nothing is published
  std::unique_ptr<AgreementChannel> channel_ COMMPOOL_GUARDED_BY(collective_);
  DomainTable domains_ COMMPOOL_GUARDED_BY(collective_);
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SYMMETRIC_POOL_H_
