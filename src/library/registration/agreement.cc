#include "src/library/registration/agreement.h"

#include <utility>

#include "src/library/base/failure.h"

namespace commpool::internal {

namespace {

Status Unreadable(size_t rank, const char* what) {
  return Disagreement(RankName(rank), " speaks for another number of pools in its ", what);
}

CallVerdict DecideOnCalls(const std::vector<std::string>& contents, const std::vector<PoolInCall>& mine) {
  Result<std::vector<CallIntents>> calls = DecodeAll<CallIntents>(contents);
  Status same = calls.status();
  if (same.ok()) same = CheckSamePools(*calls);
  if (!same.ok()) return {.failure = same};
  CallVerdict verdict;
  for (size_t place = 0; place < mine.size(); ++place) {
    std::vector<Intent> intents;
    for (CallIntents& call : *calls) intents.push_back(std::move(call.pools[place]));
    CallVerdict pool = CompareIntents(intents);
    if (pool.refused()) {
      pool.pools = std::move(verdict.pools);
      return pool;
    }
    verdict.pools.push_back(std::move(pool.pools.front()));
    if (!mine[place].judge) continue;
    std::vector<DomainReport> reports;
    for (Intent& intent : intents) reports.push_back(std::move(intent.report));
    verdict.pools.back().findings = mine[place].judge(reports);
  }
  return verdict;
}

// One more round: rank 0 and the rank that differs from it send their last calls, and all hear the first difference.
Result<std::string> TraceDifference(const PoolChannels& channels, uint64_t other_rank, const PoolInCall& pool) {
  const auto rank = static_cast<uint64_t>(channels.front()->rank());
  const bool asked = pool.history && (rank == 0 || rank == other_rank);
  const std::string mine = Encode(PublishedCalls{asked ? pool.history(pool.intent.sequence_count) : Calls()});
  return DecideTogether(channels, mine, "tracing the first differing call",
                        [&](const std::vector<std::string>& contents) {
                          const Result<std::vector<PublishedCalls>> all = DecodeAll<PublishedCalls>(contents);
                          if (!all.ok()) return all.status().message();
                          return NameFirstDifferingCall((*all)[0].calls, (*all)[other_rank].calls, other_rank);
                        });
}

// For each pool the failure of the lowest rank that failed.
Outcomes CombineOutcomes(const std::vector<std::string>& contents, const std::vector<std::string>& steps) {
  const auto of_all_pools = [&](const Status& status) { return Outcomes{std::vector<Status>(steps.size(), status)}; };
  const Result<std::vector<Outcomes>> all = DecodeAll<Outcomes>(contents);
  if (!all.ok()) return of_all_pools(all.status());
  Outcomes first = of_all_pools(Status());
  for (size_t rank = 0; rank < all->size(); ++rank) {
    const std::vector<Status>& pools = (*all)[rank].pools;
    if (pools.size() != steps.size()) return of_all_pools(Unreadable(rank, "outcome"));
    for (size_t place = 0; place < steps.size(); ++place) {
      if (pools[place].ok() || !first.pools[place].ok()) continue;
      first.pools[place] =
          Failure(pools[place].code(), steps[place], " failed on ", RankName(rank), ": ", pools[place].message());
    }
  }
  return first;
}

}  // namespace

CallVerdict AgreeOnCall(const PoolChannels& channels, const std::vector<PoolInCall>& pools) {
  CallIntents call;
  for (const PoolInCall& pool : pools) call.pools.push_back(pool.intent);
  const Result<std::string> heard =
      DecideTogether(channels, Encode(call), Name(pools.front().intent.call),
                     [&](const std::vector<std::string>& contents) { return Encode(DecideOnCalls(contents, pools)); });
  if (!heard.ok()) return {.failure = heard.status()};
  Result<CallVerdict> verdict = Decode<CallVerdict>(*heard, 0);
  if (!verdict.ok()) return {.failure = verdict.status()};
  const size_t place = verdict->pools.size();
  if (verdict->refused() ? place >= pools.size() : place != pools.size()) {
    return {.failure = Unreadable(0, "decision")};
  }
  if (verdict->traced_rank == 0) return std::move(*verdict);
  const Result<std::string> traced = TraceDifference(channels, verdict->traced_rank, pools[place]);
  verdict->diverged = traced.ok();
  verdict->failure = traced.ok() ? SequencesDiffer(*traced) : traced.status();
  return std::move(*verdict);
}

Status TellRefusal(const PoolChannels& channels, const Intent& mine) { return AgreeOnCall(channels, {{mine}}).failure; }

std::vector<Status> AgreeOnOutcomes(const PoolChannels& channels, const std::vector<Status>& mine,
                                    const std::vector<std::string>& steps) {
  const std::string told = Encode(Outcomes{mine});
  const Result<std::string> heard = DecideTogether(
      channels, told, steps.front(),
      [&](const std::vector<std::string>& contents) { return Encode(CombineOutcomes(contents, steps)); });
  const Result<Outcomes> outcomes = heard.ok() ? Decode<Outcomes>(*heard, 0) : heard.status();
  if (outcomes.ok() && outcomes->pools.size() == steps.size()) return outcomes->pools;
  return std::vector<Status>(steps.size(), outcomes.ok() ? Unreadable(0, "decision") : outcomes.status());
}

}  // namespace commpool::internal
