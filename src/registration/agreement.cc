#include "src/registration/agreement.h"

#include <optional>
#include <utility>

#include "src/base/host_patience.h"
#include "src/registration/divergence.h"
#include "src/registration/intent_comparison.h"
#include "src/registration/joined_message.h"
#include "src/registration/rank_names.h"

namespace commpool::internal {

namespace {

Status Unreadable(size_t rank, const char* what) {
  return Status(StatusCode::kDisagreement, SentUnreadable(rank, what));
}

IntentVerdict Compare(const std::vector<std::string>& contents, std::vector<std::optional<Intent>>& intents) {
  if (Status same = CheckSamePools(contents); !same.ok()) return {.failure = same};
  for (const std::string& content : contents) intents.push_back(DecodeIntent(content));
  return CompareIntents(intents);
}

Status RefusalOf(const IntentVerdict& verdict) {
  if (verdict.traced_rank == 0) return verdict.failure;
  return Status(StatusCode::kDisagreement, "its ranks made different calls before");
}

Decision DecideOnIntents(const std::vector<std::string>& contents, const ClaimJudge& judge) {
  std::vector<std::optional<Intent>> intents;
  IntentVerdict verdict = Compare(contents, intents);
  if (verdict.failure.ok() && verdict.traced_rank == 0 && judge) {
    std::vector<std::string> claims;
    for (std::optional<Intent>& intent : intents) claims.push_back(std::move(intent->claim));
    ClaimFindings findings = judge(claims);
    verdict.agreed.claims = std::move(findings.status);
    verdict.agreed.findings = std::move(findings.bytes);
  }
  return {.common = Encode(verdict), .refusal = RefusalOf(verdict)};
}

// One more round: rank 0 and the rank that differs from it send their last calls, and all hear the first difference.
Status TraceDisagreement(AgreementChannel& channel, uint64_t other_rank, const CallHistory& history) {
  const auto rank = static_cast<uint64_t>(channel.rank());
  const std::string mine =
      Insist([&] { return rank == 0 || rank == other_rank ? Encode(history.LastCalls()) : std::string(); });
  const Result<Verdict> verdict = channel.Decide(
      mine, "tracing the first differing call", [&](const std::vector<std::string>& contents) -> Decision {
        return {.common = NameFirstDifferingCall(contents[0], contents[other_rank], other_rank)};
      });
  if (!verdict.ok()) return verdict.status();
  const Status difference = SequencesDiffer(verdict->common);
  history.NoteDivergence(difference);
  return difference;
}

Decision DecideOnOutcomes(const std::vector<std::string>& contents, const std::string& step) {
  Status first;
  for (size_t rank = 0; rank < contents.size() && first.ok(); ++rank) {
    WireReader reader(contents[rank]);
    const Status outcome = ReadStatus(reader);
    if (!reader.ok()) {
      first = Unreadable(rank, "outcome");
    } else if (!outcome.ok()) {
      first = Status(outcome.code(), step + " failed on " + RankName(rank) + ": " + outcome.message());
    }
  }
  WireWriter writer;
  Write(writer, first);
  return {.common = writer.Take(), .refusal = first};
}

}  // namespace

Result<Agreed> AgreeOnIntent(AgreementChannel& channel, const Intent& mine, const CallHistory& history,
                             const ClaimJudge& judge) {
  const Result<Verdict> heard =
      channel.Decide(Insist([&] { return Encode(mine); }), Insist([&] { return std::string(Name(mine.call)); }),
                     [&](const std::vector<std::string>& contents) { return DecideOnIntents(contents, judge); });
  if (!heard.ok()) return heard.status();
  std::optional<IntentVerdict> verdict = Insist([&] { return DecodeVerdict(heard->common); });
  if (!verdict) return Unreadable(0, "decision");
  if (!verdict->failure.ok()) {
    if (verdict->diverged) history.NoteDivergence(verdict->failure);
    return verdict->failure;
  }
  if (verdict->traced_rank != 0) return TraceDisagreement(channel, verdict->traced_rank, history);
  return std::move(verdict->agreed);
}

Status TellRefusal(AgreementChannel& channel, const Intent& mine) {
  class NoHistory : public CallHistory {
    std::vector<TracedCall> LastCalls() const override { return {}; }
  };
  return AgreeOnIntent(channel, mine, NoHistory()).status();
}

Status AgreeOnOutcome(AgreementChannel& channel, const Status& mine, const std::string& step) {
  if (!mine.ok()) channel.NoteFailure(mine);
  const std::string told = Insist([&] {
    WireWriter writer;
    Write(writer, mine);
    return writer.Take();
  });
  const Result<Verdict> heard = channel.Decide(
      told, step, [&](const std::vector<std::string>& contents) { return DecideOnOutcomes(contents, step); });
  if (!heard.ok()) return heard.status();
  return Insist([&] {
    WireReader reader(heard->common);
    Status outcome = ReadStatus(reader);
    return reader.ok() ? outcome : Unreadable(0, "decision");
  });
}

}  // namespace commpool::internal
