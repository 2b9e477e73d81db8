// Collective: how one call of all ranks goes, from the intent to the agreed result.
#include "src/library/pool/symmetric/collective.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "src/library/base/try.h"
#include "src/library/driver/graph_handles.h"

namespace commpool::internal {

namespace {

// The other ranks name their own pool, whose title has another device: so the reason speaks of "it".
Status WithoutTitle(const Status& status, const std::string& title) {
  const std::string& message = status.message();
  if (status.ok() || !message.starts_with(title)) return status;
  const bool has_prefix = message.compare(title.size(), 2, ": ") == 0;
  return Status(status.code(), has_prefix ? message.substr(title.size() + 2) : "it" + message.substr(title.size()));
}

// Exact, for ranks compare the text. 0 stands for a default everywhere here.
std::string TextOf(uint64_t bytes) {
  if (bytes == UINT64_MAX) return "none";
  if (bytes == 0) return "default";
  return bytes % kMiB == 0 ? std::to_string(bytes / kMiB) + " MiB" : std::to_string(bytes) + " bytes";
}

// Placement and growth depend on these options: with different values the ranks' offsets and decisions would differ. As
// texts, so that the error can show those that differ.
std::vector<std::string> DescribeSharedOptions(const PoolConfiguration& configuration) {
  return {std::string("backing ") + Name(configuration.backing.kind),
          "alignment " + TextOf(configuration.alignment_bytes),
          "granularity " + TextOf(configuration.granularity_bytes),
          "segment " + TextOf(configuration.segment_bytes),
          "limit " + TextOf(configuration.limit_bytes),
          configuration.frees == engine::FreeOrder::kOrdered ? "frees ordered" : "frees deferred",
          "placement_rules " + std::to_string(engine::kPlacementRules)};
}

enum class Home { kNeeded, kNotNeeded, kFound };
// kTalk: the ranks exchange messages alone. kAct: without NCCL. kEnd: it may end registrations that graphs use.
enum class Does { kTalk, kAct, kCallNccl, kEnd };

// What a pool's collective calls are. One that only agrees does not appear in the sequence. Calls that share a name
// there are not mixed up: the ranks have compared the call itself before. Sleep ends no registration that a graph uses:
// it has looked already, and some graphs may outlive it (Sleeping::CheckMaySleep).
struct CallRow {
  CollectiveCall call;
  Home home;
  Does does;
  std::optional<engine::SequenceCall> sequence = std::nullopt;
};
constexpr CallRow kCalls[] = {
    {CollectiveCall::kCreate, Home::kFound, Does::kTalk},
    {CollectiveCall::kRehome, Home::kFound, Does::kTalk},
    {CollectiveCall::kVerify, Home::kNeeded, Does::kTalk},
    {CollectiveCall::kReclaim, Home::kNeeded, Does::kTalk, engine::SequenceCall::kReclaim},
    {CollectiveCall::kReserve, Home::kNeeded, Does::kCallNccl, engine::SequenceCall::kReserve},
    {CollectiveCall::kTrim, Home::kNeeded, Does::kEnd, engine::SequenceCall::kTrim},
    {CollectiveCall::kClose, Home::kNotNeeded, Does::kEnd, engine::SequenceCall::kTrim},
    {CollectiveCall::kRegister, Home::kNeeded, Does::kCallNccl, engine::SequenceCall::kRegister},
    {CollectiveCall::kDeregister, Home::kNotNeeded, Does::kEnd, engine::SequenceCall::kDeregister},
    {CollectiveCall::kAddRegistrar, Home::kNeeded, Does::kAct, engine::SequenceCall::kRegister},
    {CollectiveCall::kRemoveRegistrar, Home::kNeeded, Does::kAct, engine::SequenceCall::kDeregister},
    {CollectiveCall::kMapPeers, Home::kNeeded, Does::kAct, engine::SequenceCall::kRegister},
    {CollectiveCall::kSleep, Home::kNeeded, Does::kCallNccl, engine::SequenceCall::kSleep},
    {CollectiveCall::kWake, Home::kNeeded, Does::kCallNccl, engine::SequenceCall::kWake},
};
const CallRow& RowOf(CollectiveCall call) { return *std::ranges::find(kCalls, call, &CallRow::call); }

// A rehome that failed has failed on every rank: all refuse what needs a home, until one succeeds.
Status CheckHasHome(const PoolBasis& basis, CollectiveCall call) {
  if (RowOf(call).home != Home::kNeeded || basis.home_id.load(std::memory_order_acquire) != 0) return Status();
  return FailedPrecondition("it has no home: the last rehome failed; rehome() again or close()");
}

}  // namespace

// For the message about ranks that differ. The log has only the last calls; older ones are left out.
Calls Collective::LastCalls(uint64_t count) const {
  MutexLock lock(blocks_.mutex());
  // A difference that is older than the log cannot be named.
  const uint64_t first = count > engine::SequenceLog::kKept ? count - engine::SequenceLog::kKept : 0;
  Calls calls;
  for (uint64_t number = first; number < count; ++number) {
    const auto entry = engine().log().Entry(number);
    if (entry) calls.push_back(*entry);
  }
  return calls;
}

// The answer becomes this rank's readiness. So all ranks refuse the call, and each names this rank and its reason.
Status Collective::CheckTakesPart(CollectiveCall call) const {
  const Does does = RowOf(call).does;
  if (does == Does::kTalk) return Status();  // a capture does not forbid it
  if (captures_.any_open()) {
    return FailedPrecondition(
        "a stream is being captured with the pool, and nothing is made, registered or given back meanwhile");
  }
  // Nor while NCCL may be at a registration that was given up here: it would be called on this rank alone. Deregister
  // ends such a one.
  const Status finished = segments_.registrations.CheckFinished();
  if (!finished.ok() && does != Does::kAct && call != CollectiveCall::kDeregister) {
    return FailedPrecondition(finished.message());
  }
  if (does != Does::kEnd) return Status();
  COMMPOOL_TRY(basis_.device->CheckNotCapturing());  // they wait for the device
  return segments_.CheckMayUnmap();
}

// Everything that the ranks compare, and that rank 0 needs for its decision. `memory_left` is UINT64_MAX where it is
// unknown or does not limit the pool. Asks the driver first, without the pool's lock, and the engine last.
Intent Collective::MakeIntent(const Proposal& proposal, const Status& readiness) const {
  Intent intent{.call = proposal.call, .bytes = proposal.bytes, .granularity = segments_.granularity};
  intent.reach = static_cast<uint64_t>(segments_.backing->reach());
  intent.readiness = WithoutTitle(readiness, basis_.title);
  // A difference that the background noticed reaches all ranks here.
  intent.divergence = divergence_.status();
  intent.channel = channel_->number();
  intent.report = proposal.report;
  // By the numbers that all ranks agreed on: handles differ from rank to rank.
  for (const Communicator& held : segments_.registrations.Communicators()) intent.report.held.push_back(held.number);
  intent.nccl_version = basis_.driver.nccl.version;
  intent.memory_left = segments_.room.FreeOnDevice();
  intent.pool = basis_.name();
  if (RowOf(proposal.call).home == Home::kFound) {  // a new sequence, in which no rank has made a call
    intent.options = DescribeSharedOptions(basis_.configuration);
    for (const SegmentToRegister& segment : segments_.book.List()) intent.segments.push_back(segment.bytes);
    return intent;
  }

  MutexLock lock(blocks_.mutex());
  // Under the lock, so that all of these are of one moment.
  intent.segment_index = engine().SegmentsEver();
  intent.sequence_count = engine().log().count();
  intent.sequence_hash = engine().log().hash();
  intent.freed = engine().LocallyFreed();
  return intent;
}

// The other ranks wait for this one from here on, so nothing returns early: what goes wrong is said in the message.
PoolInCall Collective::Prepare(const Proposal& proposal, const Patience& patience) {
  // A reclaim or verify may come while a stream captures, and the calls below ask the driver.
  const std::optional<RelaxedCapture> relaxed =
      captures_.any_open() ? std::make_optional<RelaxedCapture>(basis_.driver) : std::nullopt;
  // CheckTakesPart waits for the driver's news of graphs that were destroyed just now. So the blocks of these graphs
  // count as freed in this call.
  const Status readiness = proposal.readiness.ok() ? CheckTakesPart(proposal.call) : proposal.readiness;
  // All ranks may reuse a block only after each has offered its free. So first finish every free that can be finished.
  blocks_.ReleaseParts(captures_.TakeGone());
  // A refused call does not wait: the wait that refuses it may have taken all the time that the other ranks have.
  if (readiness.ok()) AwaitStranded(patience);
  blocks_.PollFences();
  return {MakeIntent(proposal, readiness), [this](uint64_t count) { return LastCalls(count); }, proposal.judge};
}

// Where the program promises its streams (rule 11), nothing of this kind is pending, and the call does not wait.
void Collective::AwaitStranded(const Patience& patience) {
  // This thread's own default stream is within reach: an event does instead of a wait of the host.
  const auto is_own = [](StreamKey stream) { return IsPerThread(stream) && IsReachable(stream); };
  const StreamKey mine = KeyOfStream(CU_STREAM_PER_THREAD, basis_.device->device());
  if (blocks_.Ask(&engine::Engine::AnyClosedLacksFenceOf, is_own)) static_cast<void>(blocks_.FenceFreed(mine));
  if (!blocks_.Ask(&engine::Engine::AnyClosedLacksFenceOf, MayHaveDied)) return;
  // Where the wait fails, or a capture forbids it, the frees wait for a later call. Beside a lost rank the device may
  // never end its work.
  const auto is_vain = [&channel = *channel_] { return channel.broken(); };
  if (basis_.device->capturing() || is_vain()) return;
  static_cast<void>(blocks_.WaitForDevice(patience, is_vain));
}

Result<Agreed> Collective::Begin(const Proposal& proposal) {
  std::vector<Agreed> agreed = COMMPOOL_TRY(Begin(std::vector<PoolProposal>{{*this, proposal}}));
  if (const Status& judged = agreed.front().findings.status; !judged.ok()) return basis_.Named(judged);
  return std::move(agreed.front());
}

// The only place where a call goes to the other ranks. First what every rank refuses alike, without a word to others;
// then what this rank can prepare; then one round. After a failure nothing has changed that the ranks must have alike.
// The verdict holds for all pools, so it is applied to all of them before the first one acts.
Result<std::vector<Agreed>> Collective::Begin(const std::vector<PoolProposal>& pools) {
  for (const auto& [pool, proposal] : pools) {
    const PoolBasis& basis = pool.basis_;
    pool.basis_.collective.AssertHeld();
    // Closed on every rank, so nobody waits for this one, even if it has memory left.
    if (basis.life.closed() || pool.ended()) return FailedPrecondition(basis.title, " is closed");
    COMMPOOL_TRY(basis.Named(CheckHasHome(basis, proposal.call)));
    if (basis.group == nullptr) continue;
    // Only pools of the same group count: others need not be in the call. Only for the thread that made the group,
    // which would wait for itself: another thread may call for one of the pools while a third one calls for the rest.
    const auto in_group = [&](const PoolProposal& other) { return other.pool.basis_.group == basis.group; };
    const auto together = std::ranges::count_if(pools, in_group);
    COMMPOOL_TRY(basis.group->CheckComplete(basis.name(), static_cast<size_t>(together)));
  }
  std::vector<PoolInCall> prepared;
  // Room for all first, so that nothing fails between one pool's preparation and the next.
  prepared.reserve(pools.size());
  PoolChannels channels;
  const Patience patience = pools.front().pool.basis_.own_deadline_ms();
  for (const auto& [pool, proposal] : pools) {
    pool.basis_.collective.AssertHeld();
    prepared.push_back(pool.Prepare(proposal, patience));
    channels.push_back(pool.channel_.get());
  }
  // A recording shows one agreement, under the name of the first pool.
  Collective& first = pools.front().pool;
  // The caller holds the locks of all pools (LockAll), which Clang cannot see.
  first.basis_.collective.AssertHeld();
  recording::Span span = first.BeginAgreement(Name(pools.front().proposal.call));
  CallVerdict verdict = AgreeOnCall(channels, prepared);
  static_cast<void>(span.Ended(verdict.failure));
  if (!verdict.failure.ok()) {
    Collective& refused = pools[verdict.pools.size()].pool;
    // Remembered, so that later allocations fail at once.
    if (verdict.diverged) refused.divergence_.Note(verdict.failure);
    return refused.Explain(verdict.failure);
  }
  for (size_t place = 0; place < pools.size(); ++place) {
    pools[place].pool.ApplyAgreed(pools[place].proposal, verdict.pools[place]);
  }
  return std::move(verdict.pools);
}

// Every rank applies the same frees, and then notes the same call: in this order, because placement follows from the
// sequence (rule 4).
void Collective::ApplyAgreed(const Proposal& proposal, const Agreed& agreed) {
  const std::optional<engine::SequenceCall> call = RowOf(proposal.call).sequence;
  if (!call) return;
  MutexLock lock(blocks_.mutex());
  engine().ApplyFrees(agreed.freed);
  engine().NoteCollective(*call, proposal.bytes);
  Publish();
}

// The advice comes only where the channel broke: other failures leave the ranks able to call again.
Status Collective::Explain(const Status& status) const {
  if (!BreaksChannel(status)) return basis_.Named(status);
  return basis_.Named(Failure(status.code(), status.message(),
                              ". If the rank is lost: abandon every communicator while it is alive, abort them, "
                              "then close() or rehome()"));
}

// A rank without host memory tries again, as everywhere between two rounds.
Status Collective::AgreeOnStep(const Status& mine, const char* step) {
  std::vector<PoolOutcome> one{{*this, step, mine}};
  return AgreeOnSteps(one);
}

// One round over one of the channels, whichever pools are in the call (DecideTogether). It takes place after a failure
// of this rank as well: the other ranks wait in it.
Status Collective::AgreeOnSteps(std::vector<PoolOutcome>& pools) {
  PoolChannels channels;
  std::vector<Status> mine;
  std::vector<std::string> steps;
  std::optional<recording::Span> span;  // under the name of the first pool
  for (const PoolOutcome& one : pools) {
    one.pool.basis_.collective.AssertHeld();
    if (!span) span.emplace(one.pool.BeginAgreement(one.step));
    channels.push_back(one.pool.channel_.get());
    mine.push_back(WithoutTitle(one.status, one.pool.basis_.title));
    steps.push_back(one.step);
  }
  std::vector<Status> all = AgreeOnOutcomes(channels, mine, steps);
  static_cast<void>(span->Ended(all.front()));
  // The first pool that failed on any rank names the error.
  for (size_t place = 0; place < pools.size(); ++place) pools[place].status = std::move(all[place]);
  const auto failed = std::ranges::find_if(pools, [](const PoolOutcome& one) { return !one.status.ok(); });
  return failed == pools.end() ? Status() : failed->pool.Explain(failed->status);
}

Status Collective::Run(const PoolStep& step) {
  // Act without the pool's lock: it calls the driver, and mostly NCCL.
  const Status mine = step.act();
  Status all = AgreeOnStep(mine, step.name);
  // This rank undoes its step even if it succeeded here: all ranks go on, or none.
  if (!all.ok() && step.undo) step.undo(mine);
  return all;
}

// When NCCL deregisters it does not wait for running work, and it can deadlock beside a running collective.
Status Collective::AwaitDevices() {
  return Run({"waiting for the device", [&] { return blocks_.WaitForDevice(basis_.own_deadline_ms()); }});
}

// A new pool is not known to other threads yet; a rehome holds the collective lock. The wait for the ranks ends at the
// deadline.
Result<std::unique_ptr<AgreementChannel>> Collective::OpenChannel(const PrimaryContext& context, RuntimeParts& runtime,
                                                                  Communicator& home,
                                                                  const PoolConfiguration& configuration) {
  const auto open = [&]() -> Result<std::unique_ptr<AgreementChannel>> {
    if (configuration.all_gather != nullptr) {
      return MakeCallerChannel(home.rank, home.ranks, configuration.all_gather, configuration.all_gather_context);
    }
    const ContextGuard current(runtime.driver, context);
    return runtime.links.Open(runtime.driver, home, configuration.deadline_ms, runtime.unanswered);
  };
  Result<std::unique_ptr<AgreementChannel>> channel = open();
  if (!channel.ok()) return channel.status().under("pool " + configuration.name);
  home.lost = (*channel)->lost_ranks();
  return channel;
}

// Round one with a reason and nothing else: every rank of the home gets that reason as its error.
Status Collective::Refuse(AgreementChannel& channel, CollectiveCall call, const Status& why) {
  Intent refusal{.call = call};
  refusal.readiness = why;
  return TellRefusal({&channel}, refusal);
}

// The publisher and the known difference belong to the old ranks, so both end here.
void Collective::MoveTo(std::unique_ptr<AgreementChannel> channel) {
  StopPublishing();
  divergence_.Forget();
  channel_ = std::move(channel);
  agreements_ = 0;
}

// The other ranks hear from the channel's end that this one has left, and wait for it no more.
void Collective::End() {
  channel_.reset();
  StopPublishing();
}

void Collective::StartPublishing(int rank) {
  // Without the lock: it opens a way of its own to the other ranks.
  std::unique_ptr<Publisher> publisher;
  if (std::unique_ptr<BackgroundLine> line = channel_->OpenBackground()) {
    publisher = std::make_unique<Publisher>(rank, channel_->ranks(), std::move(line), divergence_);
  }
  MutexLock lock(blocks_.mutex());
  publisher_ = std::move(publisher);
}

// Only hands the calls over. The publisher sends and compares them on the thread of the link's watcher.
void Collective::Publish() {
  const engine::SequenceLog& log = engine().log();
  if (publisher_ != nullptr) publisher_->Offer(log);
  // The log has the last calls only. Whatever fell out of it before is a gap.
  for (; basis_.record.on() && recorded_calls_ < log.count(); ++recorded_calls_) {
    const std::optional<engine::SequenceEntry> entry = log.Entry(recorded_calls_);
    // A recording may have gaps; a call may not fail for it.
    if (entry) basis_.record.Called(entry->number, Name(entry->call), entry->value);
  }
}

// Counted even while nothing is recorded: a recording that begins later must number agreements as other ranks do.
recording::Span Collective::BeginAgreement(std::string_view what) {
  return basis_.record.Began(recording::SpanKind::kAgreement, what, ++agreements_, basis_.place());
}

// The publisher ends without the lock: its destructor waits for work that may be under way.
void Collective::StopPublishing() {
  std::unique_ptr<Publisher> publisher;  // destroyed after the lock is released
  MutexLock lock(blocks_.mutex());
  publisher = std::move(publisher_);
  recorded_calls_ = 0;  // another home begins another sequence
}

}  // namespace commpool::internal
