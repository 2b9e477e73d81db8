// Collective: how the ranks of a symmetric pool make a call together, step by step: they agree on the intent, act,
// agree on the outcome, and undo where a rank failed. It owns the agreement channel. reserve, trim, register,
// deregister and close use it.
//
// One call at a time, under the pool's collective lock. Any thread may publish, and may ask for a divergence.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "commpool/status.h"
#include "src/library/engine/symmetric_engine.h"
#include "src/library/pool/blocks/graph_captures.h"
#include "src/library/pool/segments/segment_store.h"
#include "src/library/pool/segments/sleep.h"
#include "src/library/registration/agreement.h"
#include "src/library/registration/agreement_channel.h"
#include "src/library/registration/divergence.h"
#include "src/library/registration/home_links.h"

namespace commpool::internal {

// What this rank proposes for a call. Lives only during the call. `bytes` means what the call makes of it: ranks
// compare it and must have the same. SymmetricMode fills one in; MakeIntent makes of it the message that goes to the
// other ranks.
struct Proposal {
  CollectiveCall call = CollectiveCall::kReserve;
  uint64_t bytes = 0;
  Status readiness = {};  // why this rank cannot take part
  // What this rank says of the communicator that the program passed, or of a new home.
  DomainReport report = {};
  ReportJudge judge = {};  // judges the reports of all ranks, where the channel decides
};

class Collective;
// One pool's proposal in a call that may take several: they agree in the same rounds.
struct PoolProposal {
  // The caller holds its collective lock, and keeps the pool alive.
  Collective& pool;
  Proposal proposal;
};
// One pool's result of a step.
struct PoolOutcome {
  // `status` goes in as this rank's result and comes out as that of all ranks. `step` names it in the error.
  Collective& pool;
  std::string step;
  Status status;
};

// SymmetricMode owns one. Lock: `collective` for a whole call; `growth` and `pool` only for single steps. Each member
// function without a remark runs on the thread of the program that makes the collective call.
class Collective : PoolParts {
 public:
  explicit Collective(const PoolParts& parts) : PoolParts(parts) {}

  // For rounds with contents of their own: the numbers of communicators, the offers of map_peers. REQUIRES: End has not
  // been called.
  AgreementChannel& channel() COMMPOOL_REQUIRES(basis_.collective) { return *channel_; }

  // Agrees on a call, applies the frees that every rank has made, and adds the call to the sequence; verify and the
  // first call of an epoch are no calls of the sequence, and change nothing. From then on this rank goes through the
  // rounds of the call's steps (Run or AgreeOnStep), whatever fails here: the others wait in them. A call needs no end.
  // Fails too where the ranks' reports contradict each other.
  Result<Agreed> Begin(const Proposal& proposal) COMMPOOL_REQUIRES(basis_.collective);
  // The same for several pools of this rank, of one home and one device. All go on or none; if none, they return the
  // failure of the first pool. Each gets what is wrong with the reports as a part of its result, because not all of
  // them may need what was reported (SymmetricMode::MissingBytes). REQUIRES: their collective locks.
  static Result<std::vector<Agreed>> Begin(const std::vector<PoolProposal>& pools);
  // Replaces each pool's result of this rank by the result of all ranks. Returns the first failure. Only growth makes
  // steps for several pools (reserve.cc).
  static Status AgreeOnSteps(std::vector<PoolOutcome>& pools);
  // The result of a step on all ranks, from this rank's result.
  Status AgreeOnStep(const Status& mine, const char* step) COMMPOOL_REQUIRES(basis_.collective);
  // Adds this pool's name to the failure of a round, and what the program can do now. A broken channel means a lost
  // rank: the advice is how to leave it.
  Status Explain(const Status& status) const;
  // Makes this rank's step, and agrees on its result.
  Status Run(const PoolStep& step) COMMPOOL_REQUIRES(basis_.collective);
  // Run as a function object, to be called under that lock.
  auto Runner() {
    return [this](const PoolStep& step) {
      basis_.collective.AssertHeld();
      return Run(step);
    };
  }
  // The step before registrations end: then the memory under them may go. The intent has checked that no live graph
  // uses them. A failure has changed nothing.
  Status AwaitDevices() COMMPOOL_REQUIRES(basis_.collective);
  // Connects to the ranks of a home, as the pool's options ask: through the program's all-gather, or through the link
  // that the pools of this home share. The link also fills in `home.lost`. Collective over home; `context` is of its
  // device.
  static Result<std::unique_ptr<AgreementChannel>> OpenChannel(const PrimaryContext& context, RuntimeParts& runtime,
                                                               Communicator& home,
                                                               const PoolConfiguration& configuration);
  // Tells the other ranks that make or rehome a pool over a channel why this rank does not. The channel is used for
  // this alone, and goes afterwards.
  static Status Refuse(AgreementChannel& channel, CollectiveCall call, const Status& why);
  // Lets the pool agree with the ranks of a new home from now on. A new sequence of calls begins.
  void MoveTo(std::unique_ptr<AgreementChannel> channel) COMMPOOL_REQUIRES(basis_.collective);
  // Ends the channel. No call may come after this.
  void End() COMMPOOL_REQUIRES(basis_.collective);
  bool ended() const COMMPOOL_REQUIRES(basis_.collective) { return channel_ == nullptr; }

  // Publishes the sequence in the background, as this rank of home. Call it once the ranks have agreed on the epoch:
  // before, their sequences may differ.
  void StartPublishing(int rank) COMMPOOL_REQUIRES(basis_.collective);
  // Call it after each call that the engine added to its sequence; a recording hears of the calls too. Allocations and
  // frees call it on any thread, so it waits for nobody.
  void Publish() COMMPOOL_REQUIRES(blocks_.mutex());
  // Waits until the publisher works no more, so without the lock. Another home may begin to publish afterwards.
  void StopPublishing() COMMPOOL_EXCLUDES(blocks_.mutex());
  // OK where the ranks' sequences are alike as far as this rank knows; else kDisagreement with the first difference.
  // Every allocation asks it: one load while nothing is known.
  Status CheckAlike() const { return divergence_.known() ? divergence_.status() : Status(); }

 private:
  // Waits for streams that may be gone, so that this rank can offer what they freed to the other ranks.
  void AwaitStranded(const Patience& patience) COMMPOOL_REQUIRES(basis_.collective);
  // This rank's message for the first round, after everything that can make frees count in this call. A host without
  // memory is tried again, because the other ranks wait.
  PoolInCall Prepare(const Proposal& proposal, const Patience& patience) COMMPOOL_REQUIRES(basis_.collective);
  // Cannot fail: the other ranks do the same now.
  void ApplyAgreed(const Proposal& proposal, const Agreed& agreed);
  // The calls before number `count`, as far as the log still has them.
  Calls LastCalls(uint64_t count) const;
  // A recording shows how long this rank waits for the others. The number of an agreement is the same on all ranks.
  recording::Span BeginAgreement(std::string_view what) COMMPOOL_REQUIRES(basis_.collective);
  // Why a capture keeps this rank from the call, if one does.
  Status CheckTakesPart(CollectiveCall call) const;
  // This rank's intent for the call. Changes nothing.
  Intent MakeIntent(const Proposal& proposal, const Status& readiness) const COMMPOOL_REQUIRES(basis_.collective);

  auto& engine() const COMMPOOL_REQUIRES(blocks_.mutex()) { return blocks_.engine<engine::SymmetricEngine>(); }

  // The first difference between the ranks' sequences that was noticed. Once known, allocations are refused.
  Divergence divergence_;
  // It has a reference to `divergence_`, so it is declared after it and ends before it.
  std::unique_ptr<Publisher> publisher_ COMMPOOL_GUARDED_BY(blocks_.mutex());  // null: nothing is published
  // Null before the first home, and after End.
  std::unique_ptr<AgreementChannel> channel_ COMMPOOL_GUARDED_BY(basis_.collective);
  // For recordings alone.
  uint64_t agreements_ COMMPOOL_GUARDED_BY(basis_.collective) = 0;    // over this channel so far
  uint64_t recorded_calls_ COMMPOOL_GUARDED_BY(blocks_.mutex()) = 0;  // of the sequence
};

}  // namespace commpool::internal
