#include "src/pool/symmetric/collective.h"

#include <optional>
#include <utility>

#include "src/base/host_failure.h"
#include "src/base/host_patience.h"
#include "src/driver/graph_handles.h"
#include "src/pool/pool_group.h"
#include "src/pool/symmetric/engine_history.h"

namespace commpool::internal {

namespace {

// A channel that has failed does not come back, whether its rank is dead or late.
Status WithWayOut(const Status& status) {
  const bool broken = status.code() == StatusCode::kRemoteFailure || status.code() == StatusCode::kDeadlineExceeded;
  if (!broken) return status;
  return Status(status.code(), status.message() +
                                   ". If the rank is lost: abandon every communicator while it is alive, abort them, "
                                   "then close() or rehome()");
}

}  // namespace

Status Collective::CheckTakesPart(CollectiveCall call) const {
  const bool between_ranks_alone =
      call == CollectiveCall::kCreate || call == CollectiveCall::kReclaim || call == CollectiveCall::kVerify;
  return between_ranks_alone ? Status() : CheckCaptures(call);
}

Status Collective::CheckCaptures(CollectiveCall call) const {
  if (captures_.any_open()) {
    return Status(StatusCode::kFailedPrecondition,
                  "a stream is being captured with the pool, and nothing is made, registered or given back meanwhile");
  }
  const bool ends_registrations =
      call == CollectiveCall::kTrim || call == CollectiveCall::kDeregister || call == CollectiveCall::kClose;
  return ends_registrations ? segments_.CheckMayUnmap() : Status();
}

Intent Collective::Observe(const Proposal& proposal) const {
  Intent intent{.call = proposal.call, .bytes = proposal.bytes, .granularity = segments_.granularity()};
  intent.nccl_version = basis_.driver.nccl.version;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  const ContextGuard current = basis_.MakeCurrent();
  const bool counts = segments_.backing().placement().kind == Placement::Kind::kDevice &&
                      basis_.driver.cuda.cuMemGetInfo(&free_bytes, &total_bytes) == CUDA_SUCCESS;
  intent.memory_left = counts ? free_bytes : UINT64_MAX;
  if (proposal.call == CollectiveCall::kCreate) {  // a new sequence, of which no rank has made a call
    intent.pool = basis_.name();
    intent.options = DescribeSharedOptions(basis_.configuration);
    for (const SegmentToRegister& segment : segments_.List()) intent.segments.push_back(segment.bytes);
    return intent;
  }

  MutexLock lock(blocks_.mutex());
  intent.segment_index = engine().SegmentsEver();
  intent.sequence_count = engine().log().count();
  intent.sequence_hash = engine().log().hash();
  intent.freed = engine().LocallyFreed();
  graph_blocks_.Keep(&intent.freed);
  return intent;
}

Intent Collective::MakeIntent(const Proposal& proposal, const Status& readiness) const {
  Intent intent = Observe(proposal);
  intent.readiness = readiness;
  intent.divergence = divergence_.status();
  intent.claim = proposal.claim;
  for (const Communicator& held : segments_.registrations().Communicators()) intent.claim.held.push_back(held.number);
  return intent;
}

Result<Agreed> Collective::Agree(const Proposal& proposal) {
  if (basis_.life.closed()) {  // on every rank
    return Status(StatusCode::kFailedPrecondition, basis_.title + " is closed");
  }
  if (basis_.group != nullptr && basis_.group->IsOfThisThread()) return basis_.group->Incomplete(basis_.name(), 1);
  const std::optional<RelaxedCapture> relaxed =
      captures_.any_open() ? std::make_optional<RelaxedCapture>(basis_.driver) : std::nullopt;
  // Waits for the word of graphs that were destroyed just now: what they held counts as freed in this call.
  const Status readiness =
      Insist([&] { return proposal.readiness.ok() ? CheckTakesPart(proposal.call) : proposal.readiness; });
  graph_blocks_.Collect();
  blocks_.PollFences();
  const Intent intent = Insist([&] {
    segments_.collective().AssertHeld();
    return MakeIntent(proposal, readiness);
  });
  const EngineHistory history(blocks_, intent.sequence_count, divergence_);
  Result<Agreed> agreed = AgreeOnIntent(*channel_, intent, history, proposal.judge);
  if (!agreed.ok()) return basis_.Named(WithWayOut(agreed.status()));
  return agreed;
}

Result<Agreed> Collective::Begin(const Proposal& proposal) {
  Result<Agreed> agreed = Agree(proposal);
  if (!agreed.ok()) return agreed;
  MutexLock lock(blocks_.mutex());
  engine().ApplyFrees(agreed->freed);
  engine().NoteCollective(SequenceCallOf(proposal.call), proposal.bytes);
  Publish();
  return agreed;
}

Status Collective::AgreeOn(const Status& mine, const char* step) {
  const std::string name = Insist([&] { return std::string(step); });
  return basis_.Named(WithWayOut(AgreeOnOutcome(*channel_, mine, name)));
}

Status Collective::Run(const CollectiveStep& step) {
  const Status mine = Attempt([&] { return step.act(); });
  Status all = AgreeOn(mine, step.name);
  if (!all.ok() && step.undo) step.undo(mine);
  return all;
}

Status Collective::TearDown(FunctionRef<Status()> deregister, FunctionRef<Status()> unmap) {
  // NCCL drains nothing when it deregisters, and beside a running collective it can deadlock: quiesce first.
  Status status = Run({"waiting for the device", [&] { return blocks_.WaitForDevice(); }});
  if (!status.ok()) return status;
  // Every rank has quiesced. Deregister on every communicator, before the caller destroys any.
  status = Run({"deregistering", deregister});
  if (!status.ok()) return status;
  // Every rank has deregistered: until then peers' imports keep the memory alive, and an address that is given out
  // again would be another block under an old window.
  return unmap();
}

void Collective::MoveTo(int rank, std::unique_ptr<AgreementChannel> channel) {
  StopPublishing();
  divergence_.Forget();
  rank_ = rank;
  channel_ = std::move(channel);
}

void Collective::End() {
  channel_.reset();
  StopPublishing();
}

void Collective::StartPublishing() {
  std::unique_ptr<Publisher> publisher =
      Publisher::Start(rank_, channel_->ranks(), channel_->OpenBackground(), divergence_);
  MutexLock lock(blocks_.mutex());
  publisher_ = std::move(publisher);
}

void Collective::Publish() {
  if (publisher_ != nullptr) publisher_->Offer(engine().log());
}

void Collective::StopPublishing() {
  std::unique_ptr<Publisher> publisher;  // ends after the lock
  MutexLock lock(blocks_.mutex());
  publisher = std::move(publisher_);
}

Status Collective::CheckAlike() const { return divergence_.known() ? divergence_.status() : Status(); }

}  // namespace commpool::internal
