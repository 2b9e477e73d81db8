#include "src/registration/agreement.h"

#include <algorithm>
#include <map>
#include <optional>

#include "src/base/bytes.h"
#include "src/registration/divergence.h"
#include "src/registration/wire.h"

namespace commpool::internal {

const char* Name(CollectiveCall call) {
  switch (call) {
    case CollectiveCall::kCreate:
      return "create";
    case CollectiveCall::kReserve:
      return "reserve";
    case CollectiveCall::kReclaim:
      return "reclaim";
    case CollectiveCall::kTrim:
      return "trim";
    case CollectiveCall::kRegister:
      return "register_with";
    case CollectiveCall::kDeregister:
      return "deregister";
    case CollectiveCall::kClose:
      return "close";
    case CollectiveCall::kVerify:
      return "verify";
  }
  return "unknown call";
}

namespace {

std::string Encode(const Intent& intent) {
  WireWriter writer;
  writer.Number(static_cast<uint64_t>(intent.call));
  for (const uint64_t number : {intent.bytes, intent.segment_index, intent.granularity, intent.memory_left,
                                intent.live_blocks, intent.sequence_count, intent.sequence_hash}) {
    writer.Number(number);
  }
  writer.Number(static_cast<uint64_t>(intent.nccl_version));
  writer.Number(static_cast<uint64_t>(intent.readiness.code()));
  writer.Text(intent.readiness.message());
  writer.Text(intent.options);
  writer.Text(intent.divergence.message());
  writer.Number(intent.freed.size());
  for (const uint64_t sequence : intent.freed) writer.Number(sequence);
  writer.Text(intent.claim);
  return writer.Take();
}

std::optional<Intent> Decode(const std::string& bytes) {
  WireReader reader(bytes);
  Intent intent;
  intent.call = static_cast<CollectiveCall>(reader.Number());
  for (uint64_t* number : {&intent.bytes, &intent.segment_index, &intent.granularity, &intent.memory_left,
                           &intent.live_blocks, &intent.sequence_count, &intent.sequence_hash}) {
    *number = reader.Number();
  }
  intent.nccl_version = static_cast<int>(reader.Number());
  const auto code = static_cast<StatusCode>(reader.Number());
  intent.readiness = Status(code, reader.Text());
  intent.options = reader.Text();
  const std::string divergence = reader.Text();
  if (!divergence.empty()) intent.divergence = Status(StatusCode::kDisagreement, divergence);
  const uint64_t count = reader.Number();
  for (uint64_t index = 0; index < count && reader.ok(); ++index) intent.freed.push_back(reader.Number());
  intent.claim = reader.Text();
  if (!reader.ok()) return std::nullopt;
  return intent;
}

std::string RankName(size_t rank) { return "rank " + std::to_string(rank); }

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

Status CheckSame(const std::vector<Intent>& intents) {
  const auto disagreement = [](const std::string& what, const std::string& difference) {
    return Status(StatusCode::kDisagreement, "ranks disagree on " + what + ": " + difference);
  };
  std::string difference =
      FirstDifference(intents, [](const Intent& intent) { return std::string(Name(intent.call)); });
  if (!difference.empty()) return disagreement("the collective call", difference);
  const std::string call = Name(intents[0].call);
  difference = FirstDifference(intents, [](const Intent& intent) { return std::to_string(intent.bytes) + " bytes"; });
  if (!difference.empty()) return disagreement("the bytes of " + call, difference);
  difference =
      FirstDifference(intents, [](const Intent& intent) { return "NCCL " + std::to_string(intent.nccl_version); });
  if (!difference.empty()) return disagreement("the NCCL version", difference);
  difference = FirstDifference(intents, [](const Intent& intent) { return intent.options; });
  if (!difference.empty()) return disagreement("the pool's options", difference);
  difference = FirstDifference(
      intents, [](const Intent& intent) { return "segment " + std::to_string(intent.segment_index) + " next"; });
  if (!difference.empty()) return disagreement("the pool's segments", difference);
  return Status();
}

Status CheckReadiness(const std::vector<Intent>& intents) {
  for (size_t rank = 0; rank < intents.size(); ++rank) {
    const Status& readiness = intents[rank].readiness;
    if (!readiness.ok()) {
      return Status(readiness.code(),
                    RankName(rank) + " cannot " + Name(intents[rank].call) + ": " + readiness.message());
    }
  }
  return Status();
}

std::string EncodeHistory(const std::vector<TracedCall>& calls) {
  WireWriter writer;
  writer.Number(calls.size());
  for (const TracedCall& call : calls) {
    writer.Number(call.number);
    writer.Number(call.hash_after);
    writer.Text(call.description);
  }
  return writer.Take();
}

std::map<uint64_t, TracedCall> DecodeHistory(const std::string& bytes) {
  WireReader reader(bytes);
  std::map<uint64_t, TracedCall> calls;
  const uint64_t count = reader.Number();
  for (uint64_t index = 0; index < count && reader.ok(); ++index) {
    TracedCall call;
    call.number = reader.Number();
    call.hash_after = reader.Number();
    call.description = reader.Text();
    calls.emplace(call.number, call);
  }
  return calls;
}

// The first call of which the hashes differ is the first that was different: everything before agreed.
std::string NameFirstDifferingCall(const std::map<uint64_t, TracedCall>& first,
                                   const std::map<uint64_t, TracedCall>& other, size_t other_rank) {
  for (const auto& [number, call] : first) {
    const auto match = other.find(number);
    if (match == other.end()) continue;
    if (match->second.hash_after == call.hash_after) continue;
    return RankName(0) + " made " + call.description + ", " + RankName(other_rank) + " made " +
           match->second.description;
  }
  const uint64_t first_last = first.empty() ? 0 : first.rbegin()->first;
  const uint64_t other_last = other.empty() ? 0 : other.rbegin()->first;
  const bool other_is_longer = other.size() > 0 && (first.empty() || other_last > first_last);
  const auto& longer = other_is_longer ? other : first;
  const auto extra = longer.find(first.empty() || other.empty() ? 0 : std::min(first_last, other_last) + 1);
  if (extra == longer.end()) return "the first difference is older than the calls that are kept";
  return RankName(other_is_longer ? other_rank : 0) + " also made " + extra->second.description;
}

Status TraceDisagreement(AgreementChannel& channel, const std::vector<Intent>& intents, const CallHistory& history) {
  Result<std::vector<std::string>> exchanged =
      channel.AllGather(EncodeHistory(history.LastCalls()), "tracing the first differing call");
  if (!exchanged.ok()) return exchanged.status();
  size_t other_rank = 1;
  while (intents[other_rank].sequence_hash == intents[0].sequence_hash &&
         intents[other_rank].sequence_count == intents[0].sequence_count) {
    ++other_rank;
  }
  const Status difference = SequencesDiffer(
      NameFirstDifferingCall(DecodeHistory((*exchanged)[0]), DecodeHistory((*exchanged)[other_rank]), other_rank));
  history.NoteDivergence(difference);
  return difference;
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

bool HaveDifferentSequences(const std::vector<Intent>& intents) {
  return std::any_of(intents.begin(), intents.end(), [&](const Intent& intent) {
    return intent.sequence_hash != intents[0].sequence_hash || intent.sequence_count != intents[0].sequence_count;
  });
}

Agreed Combine(const std::vector<Intent>& intents) {
  Agreed agreed;
  agreed.least_memory_left = UINT64_MAX;
  agreed.freed = intents[0].freed;
  for (size_t rank = 0; rank < intents.size(); ++rank) {
    const Intent& intent = intents[rank];
    agreed.granularity = std::max(agreed.granularity, intent.granularity);
    if (intent.memory_left < agreed.least_memory_left) {
      agreed.least_memory_left = intent.memory_left;
      agreed.rank_with_least_memory = static_cast<int>(rank);
    }
    if (intent.live_blocks > agreed.most_live_blocks) {
      agreed.most_live_blocks = intent.live_blocks;
      agreed.rank_with_most_live_blocks = static_cast<int>(rank);
    }
    std::vector<uint64_t> common;
    std::set_intersection(agreed.freed.begin(), agreed.freed.end(), intent.freed.begin(), intent.freed.end(),
                          std::back_inserter(common));
    agreed.freed = std::move(common);
    agreed.claims.push_back(intent.claim);
  }
  return agreed;
}

}  // namespace

Result<Agreed> AgreeOnIntent(AgreementChannel& channel, const Intent& mine, const CallHistory& history) {
  Result<std::vector<std::string>> exchanged = channel.AllGather(Encode(mine), Name(mine.call));
  if (!exchanged.ok()) return exchanged.status();
  std::vector<Intent> intents;
  for (size_t rank = 0; rank < exchanged->size(); ++rank) {
    std::optional<Intent> intent = Decode((*exchanged)[rank]);
    if (!intent)
      return Status(StatusCode::kDisagreement, RankName(rank) +
                                                   " sent an unreadable intent: do all ranks "
                                                   "run the same build of commpool?");
    intents.push_back(std::move(*intent));
  }
  Status status = CheckDivergence(intents);
  if (!status.ok()) {
    history.NoteDivergence(status);
    return status;
  }
  // A rank that cannot take part knows too little to be compared with the others.
  status = CheckReadiness(intents);
  if (!status.ok()) return status;
  if (!mine.divergence.ok()) return Combine(intents);  // a close of all
  status = CheckSame(intents);
  if (!status.ok()) return status;
  if (HaveDifferentSequences(intents)) return TraceDisagreement(channel, intents, history);
  return Combine(intents);
}

Status TellRefusal(AgreementChannel& channel, const Intent& mine) {
  class NoHistory : public CallHistory {
    std::vector<TracedCall> LastCalls() const override { return {}; }
  };
  return AgreeOnIntent(channel, mine, NoHistory()).status();
}

Status AgreeOnOutcome(AgreementChannel& channel, const Status& mine, const std::string& step) {
  WireWriter writer;
  writer.Number(static_cast<uint64_t>(mine.code()));
  writer.Text(mine.message());
  Result<std::vector<std::string>> exchanged = channel.AllGather(writer.Take(), step);
  if (!exchanged.ok()) return exchanged.status();
  for (size_t rank = 0; rank < exchanged->size(); ++rank) {
    WireReader reader((*exchanged)[rank]);
    const auto code = static_cast<StatusCode>(reader.Number());
    const std::string message = reader.Text();
    if (!reader.ok()) return Status(StatusCode::kDisagreement, RankName(rank) + " sent an unreadable outcome");
    if (code != StatusCode::kOk) return Status(code, step + " failed on " + RankName(rank) + ": " + message);
  }
  return Status();
}

}  // namespace commpool::internal
