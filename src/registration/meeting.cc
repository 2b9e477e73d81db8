// Whom the ranks of home met on new communicators, and the numbers that follow.
#include <algorithm>
#include <utility>

#include "src/base/host_patience.h"
#include "src/registration/domain.h"
#include "src/registration/intent.h"
#include "src/registration/rank_names.h"
#include "src/registration/wire.h"

namespace commpool::internal {

namespace {

// What one rank says of the communicator that it passed.
struct Met {
  Status status = {};
  int leader = -1;  // the home rank of the communicator's rank 0; -1: it passed none
  uint64_t hash = 0;
  Members members = {};  // of the leader alone
};

// FNV-1a, word by word.
uint64_t HashOf(const Members& members) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const int rank : members) hash = (hash ^ static_cast<uint64_t>(rank)) * 0x100000001b3;
  return hash;
}

std::string Encode(const Result<Members>& mine, int rank) {
  WireWriter writer;
  Write(writer, mine.status());
  const bool met = mine.ok() && !mine->empty();
  writer.Number(met ? static_cast<uint64_t>(mine->front()) : UINT64_MAX);
  writer.Number(met ? HashOf(*mine) : 0);
  const bool leads = met && mine->front() == rank;
  writer.Number(leads ? mine->size() : 0);
  for (size_t place = 0; leads && place < mine->size(); ++place) writer.Number(static_cast<uint64_t>((*mine)[place]));
  return writer.Take();
}

// Nothing where it cannot be read.
std::optional<Met> Decode(const std::string& bytes) {
  WireReader reader(bytes);
  Met met;
  met.status = ReadStatus(reader);
  met.leader = static_cast<int>(reader.Number());
  met.hash = reader.Number();
  const uint64_t count = reader.Number();
  for (uint64_t place = 0; place < count && reader.ok(); ++place) {
    met.members.push_back(static_cast<int>(reader.Number()));
  }
  return reader.ok() ? std::make_optional(std::move(met)) : std::nullopt;
}

Status Disagreement(const std::string& text) { return Status(StatusCode::kDisagreement, text); }

// Everybody's words; the failure of the lowest rank that has one.
Result<std::vector<Met>> DecodeAll(const std::vector<std::string>& contents) {
  std::vector<Met> all;
  for (const std::string& content : contents) {
    std::optional<Met> met = Decode(content);
    if (!met) return Disagreement(SentUnreadable(all.size(), "list of ranks"));
    if (!met->status.ok()) {
      const StatusCode code = met->status.code();
      return Status(code == StatusCode::kDeadlineExceeded ? StatusCode::kDisagreement : code,
                    "meeting on a communicator failed on " + RankName(all.size()) + ": " + met->status.message());
    }
    all.push_back(std::move(*met));
  }
  return all;
}

// The communicators, in the order of their lowest home ranks. kDisagreement where one's members do not all say so.
Result<std::vector<Members>> CommunicatorsOf(const std::vector<Met>& all) {
  std::vector<bool> was_met(all.size());
  std::vector<std::pair<int, const Members*>> by_lowest;
  for (size_t leader = 0; leader < all.size(); ++leader) {
    const Members& members = all[leader].members;
    if (members.empty()) continue;
    for (const int other : members) {
      const bool known = other >= 0 && static_cast<size_t>(other) < all.size();
      const bool met_the_same = known && all[static_cast<size_t>(other)].leader == all[leader].leader &&
                                all[static_cast<size_t>(other)].hash == all[leader].hash;
      if (!met_the_same) {
        return Disagreement(RankName(leader) + " met " + RankName(static_cast<size_t>(other)) +
                            " on the communicator that it passed, and that rank did not meet the same ones");
      }
      was_met[static_cast<size_t>(other)] = true;
    }
    by_lowest.emplace_back(*std::min_element(members.begin(), members.end()), &members);
  }
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].leader < 0 || was_met[rank]) continue;
    return Disagreement(RankName(rank) + " met " + RankName(static_cast<size_t>(all[rank].leader)) +
                        " on the communicator that it passed, and that rank met others");
  }
  std::sort(by_lowest.begin(), by_lowest.end());
  std::vector<Members> communicators;
  for (const auto& [lowest, members] : by_lowest) communicators.push_back(*members);
  return communicators;
}

// Changes nothing where the host has no memory: it is asked again then.
Decision Decide(const std::vector<std::string>& contents, DomainTable& domains) {
  Decision decision;
  DomainTable after = domains;
  const Result<std::vector<Met>> all = DecodeAll(contents);
  const Result<std::vector<Members>> communicators =
      all.ok() ? CommunicatorsOf(*all) : Result<std::vector<Members>>(all.status());
  if (communicators.ok()) {
    for (const std::optional<uint64_t>& number : after.Add(*communicators)) {
      WireWriter writer;
      if (number) writer.Number(*number);
      decision.single.push_back(writer.Take());
    }
  }
  WireWriter writer;
  Write(writer, communicators.status());
  decision.common = writer.Take();
  domains = std::move(after);
  return decision;
}

}  // namespace

Result<std::optional<uint64_t>> AgreeOnMembers(AgreementChannel& channel, const Result<Members>& mine,
                                               DomainTable& domains) {
  const Result<Verdict> verdict =
      channel.Decide(Insist([&] { return Encode(mine, channel.rank()); }),
                     Insist([] { return std::string("meeting on a communicator"); }),
                     [&](const std::vector<std::string>& contents) { return Decide(contents, domains); });
  if (!verdict.ok()) return verdict.status();
  const Status status = Insist([&] {
    WireReader common(verdict->common);
    const Status told = ReadStatus(common);
    return common.ok() ? told : Disagreement("rank 0 sent an unreadable list of communicators");
  });
  if (!status.ok()) return status;
  if (verdict->single.empty()) return std::optional<uint64_t>();
  return std::optional<uint64_t>(WireReader(verdict->single).Number());
}

}  // namespace commpool::internal
