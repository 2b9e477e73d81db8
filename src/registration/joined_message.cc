#include "src/registration/joined_message.h"

#include "src/base/check.h"
#include "src/registration/intent_comparison.h"
#include "src/registration/rank_names.h"
#include "src/registration/wire.h"

namespace commpool::internal {

namespace {

// Begins what several pools say and hear. No call, and no outcome, begins with such a number.
constexpr uint64_t kJoined = 0x3164656e696f6a;  // "joined1"

bool IsJoined(std::string_view bytes) { return WireReader(bytes).Number() == kJoined; }

std::optional<JoinedWords> DecodeWords(std::string_view bytes) {
  WireReader reader(bytes);
  JoinedWords words;
  if (reader.Number() != kJoined) return std::nullopt;
  words.ended = ReadStatus(reader);
  const uint64_t count = reader.Number();
  for (uint64_t place = 0; place < count && reader.ok(); ++place) {
    JoinedPool& pool = words.pools.emplace_back();
    pool.channel = reader.Number();
    pool.name = reader.Text();
    pool.said = reader.Text();
  }
  return reader.ok() ? std::make_optional(std::move(words)) : std::nullopt;
}

// "gradients (pool 1 of home), weights (pool 2 of home)".
std::string PoolsOf(std::string_view bytes) {
  if (!IsJoined(bytes)) return "one pool alone";
  const std::optional<JoinedWords> words = DecodeWords(bytes);
  if (!words) return "pools that cannot be read";
  std::string names;
  for (const JoinedPool& pool : words->pools) {
    names += (names.empty() ? "" : ", ") + pool.name;
    if (pool.channel != 0) names += " (pool " + std::to_string(pool.channel) + " of home)";
  }
  return names;
}

// As one that calls for a pool alone reads it too.
std::string EncodeFailure(const Status& failure) { return Encode(IntentVerdict{.failure = failure}); }

}  // namespace

std::string Encode(const JoinedWords& words) {
  WireWriter writer;
  writer.Number(kJoined);
  Write(writer, words.ended);
  writer.Number(words.pools.size());
  for (const JoinedPool& pool : words.pools) {
    writer.Number(pool.channel);
    writer.Text(pool.name);
    writer.Text(pool.said);
  }
  return writer.Take();
}

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
  Status beside;
  std::vector<JoinedWords> words;
  for (const std::string& content : contents) {
    std::optional<JoinedWords> one = DecodeWords(content);
    if (!one || one->pools.size() != deciders.size()) {
      const Status unreadable(StatusCode::kDisagreement, SentUnreadable(words.size(), "call for several pools"));
      return {.common = EncodeFailure(unreadable)};
    }
    if (beside.ok()) beside = one->ended;
    words.push_back(std::move(*one));
  }
  WireWriter pools;
  for (size_t place = 0; place < deciders.size(); ++place) {
    std::vector<std::string> said;
    for (JoinedWords& one : words) said.push_back(std::move(one.pools[place].said));
    const Decision decision = (*deciders[place])(said);
    COMMPOOL_CHECK(decision.single.empty(), "a call for several pools tells all ranks the same");
    if (beside.ok()) beside = decision.refusal.under("pool " + words.front().pools[place].name + ", in the same call");
    pools.Number(decision.refusal.ok() ? 0 : 1);
    pools.Text(decision.common);
  }
  WireWriter writer;
  writer.Number(kJoined);
  Write(writer, beside);
  return {.common = writer.Take() + pools.Take()};
}

std::optional<JoinedVerdict> DecodeJoinedVerdict(std::string_view bytes, size_t pools) {
  JoinedVerdict verdict;
  if (!IsJoined(bytes)) {
    const std::optional<IntentVerdict> failed = DecodeVerdict(bytes);
    if (!failed || failed->failure.ok()) return std::nullopt;
    verdict.failure = failed->failure;
    return verdict;
  }
  WireReader reader(bytes);
  reader.Number();
  verdict.beside = ReadStatus(reader);
  for (size_t place = 0; place < pools; ++place) {
    const bool refused = reader.Number() != 0;
    verdict.pools.push_back({refused, reader.Text()});
  }
  return reader.ok() ? std::make_optional(std::move(verdict)) : std::nullopt;
}

}  // namespace commpool::internal
