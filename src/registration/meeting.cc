// Which ranks of home met on new communicators, and the numbers that these communicators get.
#include <algorithm>
#include <utility>

#include "src/base/host_patience.h"
#include "src/base/try.h"
#include "src/registration/domain.h"
#include "src/registration/rank_names.h"
#include "src/registration/wire.h"

namespace commpool::internal {

namespace {

// One rank's message about the communicator that it passed.
struct Met {
  static constexpr const char* kName = "list of ranks";
  Status status = {};
  int leader = -1;  // the home rank of the communicator's rank 0; -1: it passed none
  uint64_t hash = 0;
  Members members = {};  // of the leader alone
  static constexpr auto Fields() { return std::tuple(&Met::status, &Met::leader, &Met::hash, &Met::members); }
};

// The answer for one rank: the number of its communicator.
struct Placed {
  static constexpr const char* kName = "number of a communicator";
  Status status = {};
  std::optional<uint64_t> number = {};
  static constexpr auto Fields() { return std::tuple(&Placed::status, &Placed::number); }
};

uint64_t HashOf(const Members& members) {
  uint64_t hash = kHashStart;
  for (const int rank : members) hash = HashOn(hash, static_cast<uint64_t>(rank));
  return hash;
}

Met MetBy(const Result<Members>& mine, int rank) {
  if (!mine.ok() || mine->empty()) return {.status = mine.status()};
  return {.leader = mine->front(), .hash = HashOf(*mine), .members = mine->front() == rank ? *mine : Members()};
}

Status Disagreement(const std::string& text) { return Status(StatusCode::kDisagreement, text); }

// The messages of all ranks, or the failure of the lowest rank that has one.
Result<std::vector<Met>> HearAll(const std::vector<std::string>& contents) {
  Result<std::vector<Met>> all = DecodeAll<Met>(contents);
  for (size_t rank = 0; all.ok() && rank < all->size(); ++rank) {
    const Status& status = (*all)[rank].status;
    if (status.ok()) continue;
    const bool late = status.code() == StatusCode::kDeadlineExceeded;
    return Status(late ? StatusCode::kDisagreement : status.code(),
                  "meeting on a communicator failed on " + RankName(rank) + ": " + status.message());
  }
  return all;
}

// The communicators, in the order of their lowest home ranks. kDisagreement where the members of one do not all name
// the same members.
Result<std::vector<Members>> CommunicatorsOf(const std::vector<std::string>& contents) {
  const std::vector<Met> all = COMMPOOL_TRY(HearAll(contents));
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

// Changes a copy first: where the host has no memory, the caller tries again, and must find `domains` unchanged.
Decision Decide(const std::vector<std::string>& contents, DomainTable& domains) {
  DomainTable after = domains;
  const Result<std::vector<Members>> communicators = CommunicatorsOf(contents);
  std::vector<std::optional<uint64_t>> numbers(contents.size());
  if (communicators.ok()) numbers = after.Add(*communicators);
  Decision decision;
  for (const std::optional<uint64_t>& number : numbers) {
    decision.single.push_back(Encode(Placed{communicators.status(), number}));
  }
  domains = std::move(after);
  return decision;
}

}  // namespace

Result<std::optional<uint64_t>> AgreeOnMembers(AgreementChannel& channel, const Result<Members>& mine,
                                               DomainTable& domains) {
  const Result<Verdict> verdict =
      channel.Decide(Insist([&] { return Encode(MetBy(mine, channel.rank())); }),
                     Insist([] { return std::string("meeting on a communicator"); }),
                     [&](const std::vector<std::string>& contents) { return Decide(contents, domains); });
  if (!verdict.ok()) return verdict.status();
  return Insist([&]() -> Result<std::optional<uint64_t>> {
    const Placed placed = COMMPOOL_TRY(Decode<Placed>(verdict->single, 0));
    if (!placed.status.ok()) return placed.status;
    return placed.number;
  });
}

}  // namespace commpool::internal
