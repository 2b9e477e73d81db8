#include "src/registration/joined_message.h"

#include "src/base/check.h"
#include "src/registration/intent.h"
#include "src/registration/rank_names.h"
#include "src/registration/wire.h"

namespace commpool::internal {

namespace {

// "gradients (pool 1 of home), weights (pool 2 of home)".
std::string PoolsOf(std::string_view bytes) {
  const Result<JoinedWords> words = Decode<JoinedWords>(bytes, 0);
  if (!words.ok()) return "one pool alone";
  std::string names;
  for (const JoinedPool& pool : words->pools) {
    names += (names.empty() ? "" : ", ") + pool.name;
    if (pool.channel != 0) names += " (pool " + std::to_string(pool.channel) + " of home)";
  }
  return names;
}

// As one that calls for a pool alone reads it too.
std::string EncodeFailure(const Status& failure) { return Encode(CallVerdict{{{.failure = failure}}}); }

}  // namespace

Status CheckSamePools(const std::vector<std::string>& contents) {
  const std::string expected = PoolsOf(contents[0]);
  for (size_t rank = 1; rank < contents.size(); ++rank) {
    const std::string other = PoolsOf(contents[rank]);
    if (other == expected) continue;
    return Status(StatusCode::kDisagreement, "ranks disagree on the pools of one call: " + RankName(0) + ": " +
                                                 expected + "; " + RankName(rank) + ": " + other);
  }
  return Status();
}

Decision DecideJoined(const std::vector<std::string>& contents, const std::vector<const Decider*>& deciders) {
  const Status same = CheckSamePools(contents);
  if (!same.ok()) return {.common = EncodeFailure(same)};
  JoinedVerdict verdict;
  Result<std::vector<JoinedWords>> words = DecodeAll<JoinedWords>(contents);
  if (!words.ok()) return {.common = EncodeFailure(words.status())};
  for (const JoinedWords& one : *words) {
    if (verdict.beside.ok()) verdict.beside = one.ended;
  }
  for (size_t place = 0; place < deciders.size(); ++place) {
    std::vector<std::string> said;
    for (JoinedWords& one : *words) said.push_back(std::move(one.pools[place].said));
    const Decision decision = (*deciders[place])(said);
    COMMPOOL_CHECK(decision.single.empty(), "a call for several pools tells all ranks the same");
    if (verdict.beside.ok()) {
      verdict.beside = decision.refusal.under("pool " + words->front().pools[place].name + ", in the same call");
    }
    verdict.pools.push_back({!decision.refusal.ok(), decision.common});
  }
  return {.common = Encode(verdict)};
}

std::optional<JoinedVerdict> DecodeJoinedVerdict(std::string_view bytes, size_t pools) {
  if (const Result<CallVerdict> failed = Decode<CallVerdict>(bytes, 0); failed.ok()) {
    return JoinedVerdict{.failure = failed->pools.front().failure};
  }
  Result<JoinedVerdict> verdict = Decode<JoinedVerdict>(bytes, 0);
  return verdict.ok() && verdict->pools.size() == pools ? std::make_optional(std::move(*verdict)) : std::nullopt;
}

}  // namespace commpool::internal
