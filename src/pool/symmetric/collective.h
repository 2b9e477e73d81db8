// How the ranks of a symmetric pool go through a call together, step by step: agree on the intent, act, agree on the
// outcome, undo where a rank failed. reserve, trim, register, deregister and close are written in it.
//
// One call at a time: the pool's collective lock. Publishing and asking for a divergence is any thread's.
#ifndef COMMPOOL_SRC_POOL_SYMMETRIC_COLLECTIVE_H_
#define COMMPOOL_SRC_POOL_SYMMETRIC_COLLECTIVE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/engine/symmetric_engine.h"
#include "src/pool/segments/segment_store.h"
#include "src/pool/segments/sleep.h"
#include "src/pool/symmetric/graph_blocks.h"
#include "src/registration/agreement.h"
#include "src/registration/agreement_channel.h"
#include "src/registration/divergence.h"
#include "src/registration/home_links.h"
#include "src/registration/publisher.h"

namespace commpool::internal {

// What this rank brings to a call.
struct Proposal {
  CollectiveCall call = CollectiveCall::kReserve;
  uint64_t bytes = 0;
  Status readiness = {};  // why this rank cannot take part
  DomainClaim claim = {};
  ClaimJudge judge = {};  // of all ranks' claims, where the channel decides
};

class Collective;
// What one pool of this rank brings to a call, which may be for several: they agree in the same rounds.
struct PoolProposal {
  Collective& pool;
  Proposal proposal;
};
// How one pool of a call fared in a step.
struct PoolOutcome {
  Collective& pool;
  std::string step;
  Status status;
};

class Collective {
 public:
  Collective(const PoolBasis& basis, GraphCaptures& captures, BlockStore& blocks, SegmentStore& segments,
             GraphBlocks& graph_blocks)
      : basis_(basis), captures_(captures), blocks_(blocks), segments_(segments), graph_blocks_(graph_blocks) {}

  AgreementChannel& channel() COMMPOOL_REQUIRES(segments_.collective()) { return *channel_; }

  // Agrees on a call, and changes nothing. A failure too where the ranks' claims do not go together.
  Result<Agreed> Agree(const Proposal& proposal) COMMPOOL_REQUIRES(segments_.collective());
  // Agrees on a call, lets the frees take effect that every rank has made, and notes the call in the sequence.
  Result<Agreed> Begin(const Proposal& proposal) COMMPOOL_REQUIRES(segments_.collective());
  // The same for several pools of this rank, one home and one device. All go on, or none: the failure is that of the
  // first pool that does not. REQUIRES: their collective locks.
  static Result<std::vector<Agreed>> Agree(const std::vector<PoolProposal>& pools);
  static Result<std::vector<Agreed>> Begin(const std::vector<PoolProposal>& pools);
  // Each pool's outcome of all ranks, from this one's, and the first failure.
  static Status AgreeOn(ReservedVector<PoolOutcome>& pools);
  // The outcome of all ranks of a step, from this one's.
  Status AgreeOn(const Status& mine, const char* step) COMMPOOL_REQUIRES(segments_.collective());
  Status Run(const PoolStep& step) COMMPOOL_REQUIRES(segments_.collective());
  // The same as a function, to be called under that lock.
  auto Runner() {
    return [this](const PoolStep& step) {
      segments_.collective().AssertHeld();
      return Run(step);
    };
  }
  // The one order in which registrations, and the memory under them, end on every rank. Graphs that use them are gone:
  // the intent asked for that.
  Status TearDown(FunctionRef<Status()> deregister, FunctionRef<Status()> unmap)
      COMMPOOL_REQUIRES(segments_.collective());
  // The way to the ranks of a home, as a pool's options ask for it: over the caller's all-gather, or over the link that
  // the pools of this home share, which tells `home` of lost ranks. Collective over home; `context` is of its device.
  static Result<std::unique_ptr<AgreementChannel>> OpenChannel(const Driver& driver, const PrimaryContext& context,
                                                               RuntimeParts& runtime, Communicator& home,
                                                               const PoolConfiguration& configuration);
  // Tells the ranks that make a pool, or rehome one, over a channel why this one does not.
  static Status Refuse(AgreementChannel& channel, const Status& why);
  // To the ranks of home, the first or another, with whom a new sequence of calls begins.
  void MoveTo(std::unique_ptr<AgreementChannel> channel) COMMPOOL_REQUIRES(segments_.collective());
  // No call follows.
  void End() COMMPOOL_REQUIRES(segments_.collective());

  // Publication of the sequence in the background, by this rank of home.
  void StartPublishing(int rank) COMMPOOL_REQUIRES(segments_.collective());
  // After each call that the engine took into its sequence.
  void Publish() COMMPOOL_REQUIRES(blocks_.mutex());
  void StopPublishing() COMMPOOL_EXCLUDES(blocks_.mutex());
  // OK, or how the ranks' sequences differ.
  Status CheckAlike() const;

 private:
  using CallOfSeveral = Result<std::vector<Agreed>> (*)(const std::vector<PoolProposal>& pools);

  // A call of several pools for this one.
  Result<Agreed> Alone(const Proposal& proposal, CallOfSeveral call) COMMPOOL_REQUIRES(segments_.collective());
  // Why there is nothing to agree on, on every rank alike. `present`: how many of the pools that this thread made
  // together with this one are in the call.
  Status CheckCalled(size_t present) const;
  // Offers to the others what this rank freed on streams that may be gone, once the device is done with it.
  void AwaitStranded();
  PoolInCall Ask(const Proposal& proposal) COMMPOOL_REQUIRES(segments_.collective());
  // A failure of a round, of which this pool is told.
  Status Told(const Status& status) const;
  void Note(const Proposal& proposal, const Agreed& agreed);
  Calls LastCalls(uint64_t count) const;
  // Why captures keep this rank from a call, where they do.
  Status CheckTakesPart(CollectiveCall call) const;
  // This rank's intent for the call. Changes nothing.
  Intent MakeIntent(const Proposal& proposal, const Status& readiness) const COMMPOOL_REQUIRES(segments_.collective());

  engine::SymmetricEngine& engine() const COMMPOOL_REQUIRES(blocks_.mutex()) {
    return blocks_.engine<engine::SymmetricEngine>();
  }

  const PoolBasis& basis_;
  GraphCaptures& captures_;
  BlockStore& blocks_;
  SegmentStore& segments_;
  GraphBlocks& graph_blocks_;
  Divergence divergence_;
  std::unique_ptr<Publisher> publisher_ COMMPOOL_GUARDED_BY(blocks_.mutex());  // null: nothing is published
  std::unique_ptr<AgreementChannel> channel_ COMMPOOL_GUARDED_BY(segments_.collective());
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SYMMETRIC_COLLECTIVE_H_
