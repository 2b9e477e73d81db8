// A symmetric pool: equal offsets on every rank of its home communicator, registered as windows.
//
// Made, grown, registered and shrunk only in calls that every rank makes; in between an allocation takes what is there
// or is exhausted. Every collective call is the same three steps: agree on the intent, act, agree on the outcome, and
// what was done is undone where one rank failed.
#ifndef COMMPOOL_SRC_POOL_SYMMETRIC_POOL_H_
#define COMMPOOL_SRC_POOL_SYMMETRIC_POOL_H_

#include <memory>
#include <vector>

#include "src/pool/exhaustion.h"
#include "src/pool/pool_base.h"
#include "src/registration/agreement.h"
#include "src/registration/agreement_channel.h"
#include "src/registration/communicator.h"
#include "src/registration/divergence.h"
#include "src/registration/publisher.h"

namespace commpool {

class SymmetricPool final : public PoolBase<engine::SymmetricEngine> {
 public:
  SymmetricPool(PoolParts parts, const Communicator& home, std::unique_ptr<AgreementChannel> channel);

  // The rest of creation, collective: every rank must be able to make windows, and home is the first to be registered
  // with.
  Status Open(const Status& readiness);

  Result<CUdeviceptr> Allocate(uint64_t bytes, StreamKey stream) override;
  Status Reserve(uint64_t bytes) override;
  Result<uint64_t> Reclaim() override;
  Result<uint64_t> Trim(uint64_t keep_bytes) override;
  uint64_t ReleaseUnused() override { return 0; }  // shrinking is collective
  Status Verify() override;
  Status Close() override;
  void Retire() override;
  void Abandon() override;

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
  Result<Agreed> Agree(CollectiveCall call, uint64_t bytes, const Status& readiness);
  // Agrees on a call, lets the frees take effect that every rank has made, and notes the call in the sequence.
  Result<Agreed> Begin(CollectiveCall call, uint64_t bytes, const Status& readiness);
  // The rest of reserve, where free memory does not suffice: make, agree, register, agree, adopt.
  Status Grow(uint64_t bytes, const Agreed& agreed);
  Status AddMemory(uint64_t segment_bytes);
  // A segment, with room for it under the device's limit; and back, where the step goes no further.
  Result<std::unique_ptr<Segment>> MakeSegment(uint64_t bytes) COMMPOOL_EXCLUDES(growth_);
  void DropSegment(std::unique_ptr<Segment> segment);
  // Frees that not every rank has made, or that waited for the device: they count at the pool's end, when no rank has a
  // live block.
  enum class UnmatchedFrees { kKeep, kApply };
  // Deregisters and frees these segments on every rank; none is freed before all ranks have deregistered.
  Result<uint64_t> GiveBack(const std::vector<engine::SegmentIndex>& indexes, UnmatchedFrees frees);
  Exhaustion WhyExhausted(uint64_t requested, uint64_t needed) const COMMPOOL_REQUIRES(mutex_);
  Status CheckRoom(uint64_t segment_bytes, const Agreed& agreed) const;
  uint64_t ReservedBytes() const COMMPOOL_EXCLUDES(mutex_);

  const Communicator home_;
  Divergence divergence_;
  std::unique_ptr<Publisher> publisher_ COMMPOOL_GUARDED_BY(mutex_);  // null where nothing is published
  std::unique_ptr<AgreementChannel> channel_ COMMPOOL_GUARDED_BY(collective_);
};

}  // namespace commpool

#endif  // COMMPOOL_SRC_POOL_SYMMETRIC_POOL_H_
