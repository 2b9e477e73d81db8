#include "src/library/registration/intent.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "src/library/base/bytes.h"
#include "src/library/base/failure.h"
#include "src/library/registration/lost_ranks.h"

namespace commpool::internal {

namespace {

// All ranks agree where each is like rank 0. Returns the first that differs from it in this part; 0 where none does.
template <typename Told, typename Part>
size_t FirstOther(const std::vector<Told>& ranks, Part part) {
  const auto& first = std::invoke(part, ranks[0]);
  const auto differs = [&](const auto& told) { return told != first; };
  const auto other = std::ranges::find_if(ranks, differs, part);
  return other == ranks.end() ? 0 : static_cast<size_t>(other - ranks.begin());
}

Status DisagreementOn(const std::string& what, const auto&... difference) {
  return Disagreement("ranks disagree on ", what, ": ", difference...);
}

std::string NamesOf(const std::vector<uint64_t>& segments) {
  constexpr size_t kShown = 8;
  std::string names = std::to_string(segments.size()) + " segments";
  for (size_t place = 0; place < segments.size() && place < kShown; ++place) {
    names += (place == 0 ? ": " : ", ") + FormatBytes(segments[place]);
  }
  return segments.size() > kShown ? names + ", ..." : names;
}

const std::vector<uint64_t>& MostSegments(const std::vector<Intent>& intents) {
  const auto count = [](const Intent& intent) { return intent.segments.size(); };
  return std::ranges::max_element(intents, {}, count)->segments;
}

// A rank that joins, or that a loss caught in the middle of a growth, has the first segments of the others and makes
// the rest.
Status CheckSegments(const std::vector<Intent>& intents) {
  const std::vector<uint64_t>& all = MostSegments(intents);
  for (size_t rank = 0; rank < intents.size(); ++rank) {
    const std::vector<uint64_t>& mine = intents[rank].segments;
    if (std::equal(mine.begin(), mine.end(), all.begin())) continue;
    return DisagreementOn("the pool's segments", RankName(rank), " has ", NamesOf(mine), ", another rank ",
                          NamesOf(all));
  }
  return Status();
}

// "frees: rank 0 deferred, rank 1 ordered": what differs, and nothing else.
std::string DifferenceOfOptions(const Intent& first, const Intent& other, uint64_t rank) {
  const std::vector<std::string>& here = first.options;
  const std::vector<std::string>& there = other.options;
  if (here.size() != there.size()) return "rank 0 knows others than " + RankName(rank);
  std::string text;
  for (size_t place = 0; place < here.size(); ++place) {
    if (here[place] == there[place]) continue;
    const size_t space = here[place].find(' ');
    text += (text.empty() ? "" : "; ") + here[place].substr(0, space) + ": rank 0" + here[place].substr(space) + ", " +
            RankName(rank) + there[place].substr(there[place].find(' '));
  }
  return text;
}

Status CheckOptions(const std::vector<Intent>& intents) {
  const size_t other = FirstOther(intents, &Intent::options);
  if (other == 0) return Status();
  return DisagreementOn("the pool's options", DifferenceOfOptions(intents[0], intents[other], other));
}

// kDisagreement with the first rank whose field differs from rank 0's: "ranks disagree on SUBJECT: rank 0: TOLD, rank
// 2: TOLD", followed by the advice.
template <typename Field, typename Told>
Status CheckField(const std::vector<Intent>& intents, Field field, const std::string& subject, Told told,
                  const char* advice = "") {
  const size_t other = FirstOther(intents, field);
  if (other == 0) return Status();
  return DisagreementOn(subject, RankName(0), ": ", told(std::invoke(field, intents[0])), ", ", RankName(other), ": ",
                        told(std::invoke(field, intents[other])), advice);
}

std::string SubjectOfBytes(CollectiveCall call) {
  switch (call) {
    case CollectiveCall::kSleep:
      return "sleep: some keep their blocks' contents, say something else of graphs, or have called map_peers, which "
             "counts as bytes";
    case CollectiveCall::kWake:
      return "wake: some say something else of graphs, or have called map_peers, which counts as bytes";
    default:
      return "the bytes of " + Name(call);
  }
}

Status CheckSame(const std::vector<Intent>& intents) {
  const CollectiveCall call = intents[0].call;
  const auto bytes = [](uint64_t asked) { return std::to_string(asked) + " bytes"; };
  const auto pool = [](const std::string& name) { return "pool " + name; };
  const auto version = [](int number) { return "NCCL " + std::to_string(number); };
  const auto segment = [](uint64_t index) { return "segment " + std::to_string(index) + " next"; };
  const auto meets = [](const Intent& intent) {
    return intent.call == CollectiveCall::kRehome ? CollectiveCall::kCreate : intent.call;
  };
  COMMPOOL_TRY(CheckField(intents, meets, "the collective call", Name));
  COMMPOOL_TRY(CheckField(intents, &Intent::pool, "which pool they " + Name(call), pool,
                          ". Ranks make the pools of one home in one order"));
  COMMPOOL_TRY(CheckField(intents, &Intent::bytes, SubjectOfBytes(call), bytes));
  COMMPOOL_TRY(CheckField(intents, &Intent::nccl_version, "the NCCL version", version));
  COMMPOOL_TRY(CheckOptions(intents));
  COMMPOOL_TRY(CheckField(intents, &Intent::segment_index, "the pool's segments", segment));
  return CheckSegments(intents);
}

Status CheckReadiness(const std::vector<Intent>& intents) {
  for (size_t rank = 0; rank < intents.size(); ++rank) {
    const Status& readiness = intents[rank].readiness;
    if (readiness.ok()) continue;
    return Failure(readiness.code(), RankName(rank), " cannot ", Name(intents[rank].call), ": ", readiness.message());
  }
  return Status();
}

// The difference that one of the ranks knows already. OK where no rank knows one; in a close, where all ranks do.
Status CheckDivergence(const std::vector<Intent>& intents) {
  const auto first = std::ranges::find_if(intents, [](const Intent& intent) { return !intent.divergence.ok(); });
  if (first == intents.end()) return Status();
  const bool all_end_the_pool = std::ranges::all_of(
      intents, [](const Intent& intent) { return intent.call == CollectiveCall::kClose && !intent.divergence.ok(); });
  return all_end_the_pool ? Status() : first->divergence;
}

Agreed CombineIntents(const std::vector<Intent>& intents) {
  const auto least = std::ranges::min_element(intents, {}, &Intent::memory_left);
  Agreed agreed{.least_memory_left = least->memory_left,
                .rank_with_least_memory = static_cast<int>(least - intents.begin()),
                .freed = intents[0].freed,
                .segments = MostSegments(intents)};
  for (const Intent& intent : intents) {
    agreed.granularity = std::max(agreed.granularity, intent.granularity);
    agreed.reach = std::max(agreed.reach, intent.reach);
    std::vector<uint64_t> common;
    std::ranges::set_intersection(agreed.freed, intent.freed, std::back_inserter(common));
    agreed.freed = std::move(common);
  }
  return agreed;
}

// "gradients (pool 1 of home), weights (pool 2 of home)".
std::string PoolsOf(const CallIntents& call) {
  if (call.pools.size() == 1) return "one pool alone";
  std::string names;
  for (const Intent& pool : call.pools) {
    names += (names.empty() ? "" : ", ") + pool.pool;
    if (pool.channel != 0) names += " (pool " + std::to_string(pool.channel) + " of home)";
  }
  return names;
}

}  // namespace

std::string Name(CollectiveCall call) {
  constexpr const char* kNames[] = {"create",
                                    "reserve",
                                    "reclaim",
                                    "trim",
                                    "register_with",
                                    "deregister",
                                    "close",
                                    "verify",
                                    "sleep",
                                    "wake",
                                    "put the communicator to sleep",
                                    "wake the communicator",
                                    "add_registrar",
                                    "remove_registrar",
                                    "map_peers",
                                    "rehome"};
  const auto place = static_cast<size_t>(call);
  return place < std::size(kNames) ? kNames[place] : "unknown call";
}

Status CheckSamePools(const std::vector<CallIntents>& calls) {
  const auto pools = [](const CallIntents& call) { return std::pair(PoolsOf(call), call.pools.size()); };
  const size_t other = FirstOther(calls, pools);
  if (other == 0) return Status();
  return DisagreementOn("the pools of one call", RankName(0), ": ", PoolsOf(calls[0]), "; ", RankName(other), ": ",
                        PoolsOf(calls[other]));
}

CallVerdict CompareIntents(const std::vector<Intent>& intents) {
  if (Status known = CheckDivergence(intents); !known.ok()) return {.failure = known, .diverged = true};
  // A rank that cannot take part knows too little to be compared with the others.
  if (Status ready = CheckReadiness(intents); !ready.ok()) return {.failure = ready};
  const bool all_end_a_diverged_pool = !intents[0].divergence.ok();
  if (all_end_a_diverged_pool) return {.pools = {CombineIntents(intents)}};
  if (Status same = CheckSame(intents); !same.ok()) return {.failure = same};
  const auto sequence = [](const Intent& intent) { return std::pair(intent.sequence_count, intent.sequence_hash); };
  if (const size_t other = FirstOther(intents, sequence); other != 0) return {.traced_rank = other};
  return {.pools = {CombineIntents(intents)}};
}

}  // namespace commpool::internal
