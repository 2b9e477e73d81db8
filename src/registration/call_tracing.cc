#include "src/registration/call_tracing.h"

#include <algorithm>
#include <map>

#include "src/registration/rank_names.h"
#include "src/registration/wire.h"

namespace commpool::internal {

namespace {

using CallsByNumber = std::map<uint64_t, TracedCall>;

CallsByNumber Decode(std::string_view bytes) {
  WireReader reader(bytes);
  CallsByNumber calls;
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

}  // namespace

std::string Encode(const std::vector<TracedCall>& calls) {
  WireWriter writer;
  writer.Number(calls.size());
  for (const TracedCall& call : calls) {
    writer.Number(call.number);
    writer.Number(call.hash_after);
    writer.Text(call.description);
  }
  return writer.Take();
}

// The first call of which the hashes differ is the first that was different: everything before agreed.
std::string NameFirstDifferingCall(std::string_view of_rank_zero, std::string_view of_other, size_t other_rank) {
  const CallsByNumber first = Decode(of_rank_zero);
  const CallsByNumber other = Decode(of_other);
  for (const auto& [number, call] : first) {
    const auto match = other.find(number);
    if (match == other.end() || match->second.hash_after == call.hash_after) continue;
    return RankName(0) + " made " + call.description + ", " + RankName(other_rank) + " made " +
           match->second.description;
  }
  const uint64_t first_last = first.empty() ? 0 : first.rbegin()->first;
  const uint64_t other_last = other.empty() ? 0 : other.rbegin()->first;
  const bool other_is_longer = !other.empty() && (first.empty() || other_last > first_last);
  const CallsByNumber& longer = other_is_longer ? other : first;
  const auto extra = longer.find(first.empty() || other.empty() ? 0 : std::min(first_last, other_last) + 1);
  if (extra == longer.end()) return "the first difference is older than the calls that are kept";
  return RankName(other_is_longer ? other_rank : 0) + " also made " + extra->second.description;
}

}  // namespace commpool::internal
