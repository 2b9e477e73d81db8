#include "src/registration/intent_comparison.h"

#include <algorithm>
#include <iterator>

#include "src/base/bytes.h"
#include "src/registration/rank_names.h"

namespace commpool::internal {

namespace {

// "rank 0: 1 MiB, rank 2: 2 MiB": of the first rank and the first that differs.
template <typename Describe>
std::string FirstDifference(const std::vector<Intent>& intents, Describe describe) {
  const std::string expected = describe(intents[0]);
  for (size_t rank = 1; rank < intents.size(); ++rank) {
    const std::string other = describe(intents[rank]);
    if (other != expected) return RankName(0) + ": " + expected + ", " + RankName(rank) + ": " + other;
  }
  return "";
}

Status Disagreement(const std::string& what, const std::string& difference) {
  return Status(StatusCode::kDisagreement, "ranks disagree on " + what + ": " + difference);
}

std::string NamesOf(const std::vector<uint64_t>& segments) {
  constexpr size_t kShown = 8;
  std::string names = std::to_string(segments.size()) + " segments";
  for (size_t place = 0; place < segments.size() && place < kShown; ++place) {
    names += (place == 0 ? ": " : ", ") + FormatBytes(segments[place]);
  }
  return segments.size() > kShown ? names + ", ..." : names;
}

const Intent& WithMostSegments(const std::vector<Intent>& intents) {
  return *std::max_element(intents.begin(), intents.end(), [](const Intent& one, const Intent& other) {
    return one.segments.size() < other.segments.size();
  });
}

// A rank that joins, or that a loss caught in the middle of a growth, has the first segments of the others and makes
// the rest.
Status CheckSegments(const std::vector<Intent>& intents) {
  const std::vector<uint64_t>& all = WithMostSegments(intents).segments;
  for (size_t rank = 0; rank < intents.size(); ++rank) {
    const std::vector<uint64_t>& mine = intents[rank].segments;
    if (std::equal(mine.begin(), mine.end(), all.begin())) continue;
    return Disagreement("the pool's segments",
                        RankName(rank) + " has " + NamesOf(mine) + ", another rank " + NamesOf(all));
  }
  return Status();
}

Status CheckSame(const std::vector<Intent>& intents) {
  std::string difference =
      FirstDifference(intents, [](const Intent& intent) { return std::string(Name(intent.call)); });
  if (!difference.empty()) return Disagreement("the collective call", difference);
  const std::string call = Name(intents[0].call);
  difference = FirstDifference(intents, [](const Intent& intent) { return "pool " + intent.pool; });
  if (!difference.empty()) {
    return Disagreement("which pool they " + call, difference + ". Ranks make the pools of one home in one order");
  }
  difference = FirstDifference(intents, [](const Intent& intent) { return std::to_string(intent.bytes) + " bytes"; });
  if (!difference.empty() && intents[0].call == CollectiveCall::kSleep) {
    return Disagreement("sleep", "some keep their blocks' contents, or promise graphs without collectives");
  }
  if (!difference.empty()) return Disagreement("the bytes of " + call, difference);
  difference =
      FirstDifference(intents, [](const Intent& intent) { return "NCCL " + std::to_string(intent.nccl_version); });
  if (!difference.empty()) return Disagreement("the NCCL version", difference);
  difference = FirstDifference(intents, [](const Intent& intent) { return intent.options; });
  if (!difference.empty()) return Disagreement("the pool's options", difference);
  difference = FirstDifference(
      intents, [](const Intent& intent) { return "segment " + std::to_string(intent.segment_index) + " next"; });
  if (!difference.empty()) return Disagreement("the pool's segments", difference);
  return CheckSegments(intents);
}

Status CheckReadiness(const std::vector<Intent>& intents) {
  for (size_t rank = 0; rank < intents.size(); ++rank) {
    const Status& readiness = intents[rank].readiness;
    if (readiness.ok()) continue;
    return Status(readiness.code(),
                  RankName(rank) + " cannot " + Name(intents[rank].call) + ": " + readiness.message());
  }
  return Status();
}

// The difference that one of the ranks has heard of before. OK where none has, and in a close where all have.
Status CheckDivergence(const std::vector<Intent>& intents) {
  const auto first =
      std::find_if(intents.begin(), intents.end(), [](const Intent& intent) { return !intent.divergence.ok(); });
  if (first == intents.end()) return Status();
  const bool all_end_the_pool = std::all_of(intents.begin(), intents.end(), [](const Intent& intent) {
    return intent.call == CollectiveCall::kClose && !intent.divergence.ok();
  });
  return all_end_the_pool ? Status() : first->divergence;
}

// The first rank whose sequence differs from rank 0's; 0 where none does.
uint64_t FirstWithAnotherSequence(const std::vector<Intent>& intents) {
  const auto other = std::find_if(intents.begin(), intents.end(), [&](const Intent& intent) {
    return intent.sequence_hash != intents[0].sequence_hash || intent.sequence_count != intents[0].sequence_count;
  });
  return other == intents.end() ? 0 : static_cast<uint64_t>(other - intents.begin());
}

Agreed Combine(const std::vector<Intent>& intents) {
  Agreed agreed{
      .least_memory_left = UINT64_MAX, .freed = intents[0].freed, .segments = WithMostSegments(intents).segments};
  for (size_t rank = 0; rank < intents.size(); ++rank) {
    const Intent& intent = intents[rank];
    agreed.granularity = std::max(agreed.granularity, intent.granularity);
    if (intent.memory_left < agreed.least_memory_left) {
      agreed.least_memory_left = intent.memory_left;
      agreed.rank_with_least_memory = static_cast<int>(rank);
    }
    std::vector<uint64_t> common;
    std::set_intersection(agreed.freed.begin(), agreed.freed.end(), intent.freed.begin(), intent.freed.end(),
                          std::back_inserter(common));
    agreed.freed = std::move(common);
  }
  return agreed;
}

}  // namespace

IntentVerdict CompareIntents(const std::vector<std::optional<Intent>>& received) {
  std::vector<Intent> intents;
  for (const std::optional<Intent>& intent : received) {
    if (!intent) {
      return {.failure = Status(StatusCode::kDisagreement, SentUnreadable(intents.size(), "intent"))};
    }
    intents.push_back(*intent);
  }
  if (Status known = CheckDivergence(intents); !known.ok()) return {.failure = known, .diverged = true};
  // A rank that cannot take part knows too little to be compared with the others.
  if (Status ready = CheckReadiness(intents); !ready.ok()) return {.failure = ready};
  const bool all_end_a_diverged_pool = !intents[0].divergence.ok();
  if (all_end_a_diverged_pool) return {.agreed = Combine(intents)};
  if (Status same = CheckSame(intents); !same.ok()) return {.failure = same};
  const uint64_t other = FirstWithAnotherSequence(intents);
  if (other != 0) return {.traced_rank = other};
  return {.agreed = Combine(intents)};
}

std::string Encode(const IntentVerdict& verdict) {
  WireWriter writer;
  Write(writer, verdict.failure);
  writer.Number(verdict.diverged ? 1 : 0);
  writer.Number(verdict.traced_rank);
  writer.Text(Encode(verdict.agreed));
  return writer.Take();
}

std::optional<IntentVerdict> DecodeVerdict(std::string_view bytes) {
  WireReader reader(bytes);
  IntentVerdict verdict;
  verdict.failure = ReadStatus(reader);
  verdict.diverged = reader.Number() != 0;
  verdict.traced_rank = reader.Number();
  const std::optional<Agreed> agreed = DecodeAgreed(reader.Text());
  if (!reader.ok() || !agreed) return std::nullopt;
  verdict.agreed = *agreed;
  return verdict;
}

}  // namespace commpool::internal
