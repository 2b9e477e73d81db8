#include "src/registration/agreement.h"

#include <utility>

#include "src/base/host_patience.h"
#include "src/base/try.h"
#include "src/registration/divergence.h"
#include "src/registration/intent_comparison.h"
#include "src/registration/rank_names.h"
#include "src/registration/sequence_comparison.h"

namespace commpool::internal {

namespace {

Status Unreadable(size_t rank, const char* what) {
  return Status(StatusCode::kDisagreement, RankName(rank) + " speaks for another number of pools in its " + what);
}

void Judge(const ClaimJudge& judge, std::vector<Intent>& intents, Agreed& agreed) {
  std::vector<DomainClaim> claims;
  for (Intent& intent : intents) claims.push_back(std::move(intent.claim));
  ClaimFindings found = judge(claims);
  agreed.claims = std::move(found.status);
  agreed.findings = found.findings;
}

CallVerdict DecideOnCalls(const std::vector<std::string>& contents, const std::vector<PoolInCall>& mine) {
  Result<std::vector<CallIntents>> calls = DecodeAll<CallIntents>(contents);
  Status same = calls.status();
  if (same.ok()) same = CheckSamePools(*calls);
  if (!same.ok()) return {{{.failure = same}}};
  CallVerdict verdict;
  for (size_t place = 0; place < mine.size(); ++place) {
    std::vector<Intent> intents;
    for (CallIntents& call : *calls) intents.push_back(std::move(call.pools[place]));
    IntentVerdict& pool = verdict.pools.emplace_back(CompareIntents(intents));
    if (pool.refused()) break;
    if (mine[place].judge) Judge(mine[place].judge, intents, pool.agreed);
  }
  return verdict;
}

// One more round: rank 0 and the rank that differs from it send their last calls, and all hear the first difference.
Status TraceDisagreement(AgreementChannel& channel, uint64_t other_rank, const PoolInCall& pool) {
  const auto rank = static_cast<uint64_t>(channel.rank());
  const std::string mine = Insist([&] {
    const bool asked = rank == 0 || rank == other_rank;
    return Encode(PublishedCalls{asked ? pool.history->LastCalls(pool.intent.sequence_count) : Calls()});
  });
  const Result<Verdict> verdict = channel.Decide(
      mine, "tracing the first differing call", [&](const std::vector<std::string>& contents) -> Decision {
        const Result<std::vector<PublishedCalls>> all = DecodeAll<PublishedCalls>(contents);
        if (!all.ok()) return {.common = all.status().message()};
        return {.common = NameFirstDifferingCall((*all)[0].calls, (*all)[other_rank].calls, other_rank)};
      });
  if (!verdict.ok()) return verdict.status();
  const Status difference = SequencesDiffer(verdict->common);
  pool.history->NoteDivergence(difference);
  return difference;
}

// The first rank's failure of each pool.
Result<Outcomes> Combine(const std::vector<std::string>& contents, const std::vector<std::string>& steps) {
  const std::vector<Outcomes> all = COMMPOOL_TRY(DecodeAll<Outcomes>(contents));
  Outcomes first{std::vector<Status>(steps.size())};
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const std::vector<Status>& pools = all[rank].pools;
    if (pools.size() != steps.size()) return Unreadable(rank, "outcome");
    for (size_t place = 0; place < steps.size(); ++place) {
      if (pools[place].ok() || !first.pools[place].ok()) continue;
      first.pools[place] =
          Status(pools[place].code(), steps[place] + " failed on " + RankName(rank) + ": " + pools[place].message());
    }
  }
  return first;
}

Decision DecideOnOutcomes(const std::vector<std::string>& contents, const std::vector<std::string>& steps) {
  const Result<Outcomes> combined = Combine(contents, steps);
  return {.common = Encode(combined.ok() ? *combined : Outcomes{std::vector<Status>(steps.size(), combined.status())})};
}

}  // namespace

Agreement AgreeOnCall(AgreementChannel& channel, const std::vector<PoolInCall>& pools) {
  const std::string mine = Insist([&] {
    CallIntents call;
    for (const PoolInCall& pool : pools) call.pools.push_back(pool.intent);
    return Encode(call);
  });
  const Result<Verdict> heard = channel.Decide(mine, Insist([&] { return Name(pools.front().intent.call); }),
                                               [&](const std::vector<std::string>& contents) -> Decision {
                                                 return {.common = Encode(DecideOnCalls(contents, pools))};
                                               });
  if (!heard.ok()) return {.status = heard.status()};
  Result<CallVerdict> verdict = Insist([&] { return Decode<CallVerdict>(heard->common, 0); });
  if (!verdict.ok()) return {.status = verdict.status()};
  Agreement agreement;
  Insist([&] { agreement.pools.reserve(pools.size()); });
  for (IntentVerdict& pool : verdict->pools) {
    agreement.refused = agreement.pools.size();
    if (pool.refused() && agreement.refused < pools.size()) {
      const PoolInCall& own = pools[agreement.refused];
      if (pool.diverged) own.history->NoteDivergence(pool.failure);
      agreement.status =
          pool.traced_rank != 0 ? TraceDisagreement(channel, pool.traced_rank, own) : std::move(pool.failure);
      return agreement;
    }
    agreement.pools.push_back(std::move(pool.agreed));
  }
  if (agreement.pools.size() != pools.size()) agreement.status = Insist([&] { return Unreadable(0, "decision"); });
  return agreement;
}

Result<Agreed> AgreeOnIntent(AgreementChannel& channel, const Intent& mine, const CallHistory& history,
                             const ClaimJudge& judge) {
  Agreement agreement = AgreeOnCall(channel, Insist([&] { return std::vector<PoolInCall>{{mine, &history, judge}}; }));
  if (!agreement.status.ok()) return agreement.status;
  return std::move(agreement.pools.front());
}

Status TellRefusal(AgreementChannel& channel, const Intent& mine) {
  class NoHistory : public CallHistory {
    std::vector<engine::SequenceEntry> LastCalls(uint64_t) const override { return {}; }
  };
  return AgreeOnIntent(channel, mine, NoHistory()).status();
}

std::vector<Status> AgreeOnOutcomes(AgreementChannel& channel, const std::vector<Status>& mine,
                                    const std::vector<std::string>& steps) {
  const std::string told = Insist([&] { return Encode(Outcomes{mine}); });
  const Result<Verdict> heard = channel.Decide(
      told, steps.front(), [&](const std::vector<std::string>& contents) { return DecideOnOutcomes(contents, steps); });
  return Insist([&] {
    const Result<Outcomes> outcomes = heard.ok() ? Decode<Outcomes>(heard->common, 0) : heard.status();
    Status status = outcomes.status();
    if (outcomes.ok() && outcomes->pools.size() == steps.size()) return outcomes->pools;
    if (outcomes.ok()) status = Unreadable(0, "decision");
    return std::vector<Status>(steps.size(), status);
  });
}

Status AgreeOnOutcome(AgreementChannel& channel, const Status& mine, const std::string& step) {
  const auto alone = [](const auto& one) { return std::vector{one}; };
  return AgreeOnOutcomes(channel, Insist([&] { return alone(mine); }), Insist([&] { return alone(step); })).front();
}

}  // namespace commpool::internal
