#include "src/library/registration/domain.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#include "src/library/base/field_list.h"
#include "src/library/base/try.h"
#include "src/library/registration/wire.h"

namespace commpool::internal {

namespace {

// "ranks 0, 2, 3". Of many ranks it names the first only, because every rank gets the sentence.
std::string RankNames(const std::vector<int>& ranks) { return NamesOfRanks(ranks, 16); }

std::string NameOf(uint64_t number, const Members& members) {
  if (number == DomainTable::kHome) return "home";
  return "registration " + std::to_string(number) + " (" + RankNames(members) + ")";
}

std::string Passed(const DomainReport& report) {
  if (!report.passed) return "null";
  if (report.number) {
    return *report.number == DomainTable::kHome ? "home" : "that of registration " + std::to_string(*report.number);
  }
  return "a new communicator of " + std::to_string(report.ranks) + " ranks";
}

template <typename Condition>
std::vector<int> RanksWhere(const std::vector<DomainReport>& reports, Condition condition) {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (condition(reports[rank])) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

bool Holds(const DomainReport& report, uint64_t number) {
  return std::binary_search(report.held.begin(), report.held.end(), number);
}

bool IsNew(const DomainReport& report) { return report.passed && !report.number; }

// Names the ranks that may have made the mistake: "rank 3 passed null, rank 4 a new communicator of 2 ranks".
std::string OthersOf(const std::vector<DomainReport>& reports, int size) {
  const std::vector<int> null = RanksWhere(reports, [](const DomainReport& report) { return !report.passed; });
  const std::vector<int> different = RanksWhere(
      reports, [&](const DomainReport& report) { return report.passed && !(IsNew(report) && report.ranks == size); });
  std::string others;
  if (!null.empty()) others += RankNames(null) + " passed null";
  if (!different.empty()) others += (others.empty() ? "" : ", ") + RankNames(different) + " another communicator";
  return others;
}

// Checks the new communicators of one size: each of their ranks (0, 1 and so on) must have been passed equally often.
// It cannot tell yet which ranks belong together.
Status CheckNewOfSize(const std::vector<DomainReport>& reports, int size) {
  std::vector<std::vector<int>> passed_as(static_cast<size_t>(size));
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const DomainReport& report = reports[rank];
    if (IsNew(report) && report.ranks == size) {
      passed_as[static_cast<size_t>(report.rank)].push_back(static_cast<int>(rank));
    }
  }
  const auto times = [](const std::vector<int>& ranks) { return ranks.size(); };
  const auto most = std::ranges::max_element(passed_as, {}, times);
  const auto least = std::ranges::min_element(passed_as, {}, times);
  if (most->size() == least->size()) return Status();
  const auto place = [&](auto entry) { return std::to_string(entry - passed_as.begin()); };
  const std::string others = OthersOf(reports, size);
  return Disagreement("ranks disagree on the communicator: ", RankNames(*most), " of home passed one of ", size,
                      " ranks as its rank ", place(most), ", and ",
                      least->empty() ? "nobody" : "only " + RankNames(*least), " passed one as its rank ", place(least),
                      others.empty() ? "" : "; " + others, ". ",
                      most->size() == 1 ? "Whoever is that rank did not pass it"
                                        : "One of " + RankNames(*most) + " passed another than its members did",
                      ": all members of a communicator pass it in the same call, the others null");
}

// Which ranks of home met on new communicators, and the numbers that these communicators get.

// One rank's message about the communicator that it passed.
struct Met {
  static constexpr const char* kName = "list of ranks";
  Status status = {};
  int leader = -1;  // the home rank of the communicator's rank 0; -1: it passed none
  uint64_t hash = 0;
  Members members = {};  // of the leader alone
  using Fields = FieldList<&Met::status, &Met::leader, &Met::hash, &Met::members>;
};

// The answer. The number of a communicator is its lowest home rank on top of `first`.
struct Placed {
  static constexpr const char* kName = "number of communicators";
  Status status = {};
  uint64_t first = 0;
  using Fields = FieldList<&Placed::status, &Placed::first>;
};

uint64_t LowestOf(const Members& members) { return static_cast<uint64_t>(std::ranges::min(members)); }

uint64_t HashOf(const Members& members) {
  uint64_t hash = kHashStart;
  for (const int rank : members) hash = HashOn(hash, static_cast<uint64_t>(rank));
  return hash;
}

Met MetBy(const Result<Members>& mine, int rank) {
  if (!mine.ok() || mine->empty()) return {.status = mine.status()};
  return {.leader = mine->front(), .hash = HashOf(*mine), .members = mine->front() == rank ? *mine : Members()};
}

// The messages of all ranks, or the failure of the lowest rank that has one.
Result<std::vector<Met>> HearAll(const std::vector<std::string>& contents) {
  Result<std::vector<Met>> all = DecodeAll<Met>(contents);
  for (size_t rank = 0; all.ok() && rank < all->size(); ++rank) {
    const Status& status = (*all)[rank].status;
    if (status.ok()) continue;
    const bool late = status.code() == StatusCode::kDeadlineExceeded;
    return Failure(late ? StatusCode::kDisagreement : status.code(), "meeting on a communicator failed on ",
                   RankName(rank), ": ", status.message());
  }
  return all;
}

// The communicators. kDisagreement where the members of one do not all name the same members.
Result<std::vector<Members>> CommunicatorsOf(const std::vector<std::string>& contents) {
  const std::vector<Met> all = COMMPOOL_TRY(HearAll(contents));
  std::vector<bool> was_met(all.size());
  std::vector<Members> communicators;
  for (size_t leader = 0; leader < all.size(); ++leader) {
    const Members& members = all[leader].members;
    if (members.empty()) continue;
    for (const int other : members) {
      const bool known = other >= 0 && static_cast<size_t>(other) < all.size();
      const bool met_the_same = known && all[static_cast<size_t>(other)].leader == all[leader].leader &&
                                all[static_cast<size_t>(other)].hash == all[leader].hash;
      if (!met_the_same) {
        return Disagreement(RankName(leader), " met ", RankName(static_cast<size_t>(other)),
                            " on the communicator that it passed, and that rank did not meet the same ones");
      }
      was_met[static_cast<size_t>(other)] = true;
    }
    communicators.push_back(members);
  }
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].leader < 0 || was_met[rank]) continue;
    return Disagreement(RankName(rank), " met ", RankName(static_cast<size_t>(all[rank].leader)),
                        " on the communicator that it passed, and that rank met others");
  }
  return communicators;
}

}  // namespace

Findings FindingsOf(const std::vector<DomainReport>& reports) {
  Findings findings;
  for (const DomainReport& report : reports) {
    findings.any_new |= IsNew(report);
    findings.home |= report.passed && report.number == DomainTable::kHome;
  }
  return findings;
}

std::vector<uint64_t> NumbersPassed(const std::vector<DomainReport>& reports) {
  std::set<uint64_t> numbers;
  for (const DomainReport& report : reports) {
    if (report.passed && report.number) numbers.insert(*report.number);
  }
  return {numbers.begin(), numbers.end()};
}

Status CheckSameReturns(const std::vector<DomainReport>& reports) {
  std::map<uint64_t, std::vector<std::pair<int, uint64_t>>> orders;  // ranks and their orders, by communicators
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    for (const auto& [number, order] : reports[rank].returns) orders[number].emplace_back(rank, order);
  }
  for (const auto& [number, of_ranks] : orders) {
    const std::pair<int, uint64_t>& first = of_ranks.front();
    const auto differs = [&](const std::pair<int, uint64_t>& of_rank) { return of_rank.second != first.second; };
    const auto other = std::ranges::find_if(of_ranks, differs);
    if (other == of_ranks.end()) continue;
    Members members;
    for (const auto& [rank, order] : of_ranks) members.push_back(rank);
    return Disagreement("NCCL has placed windows of ", NameOf(number, members), " otherwise on rank ", other->first,
                        " than on rank ", first.first);
  }
  return Status();
}

Members DomainTable::MembersOf(uint64_t number) const {
  if (const auto found = members_.find(number); found != members_.end()) return found->second;
  Members all(static_cast<size_t>(home_ranks_));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Status DomainTable::CheckHeld(const std::vector<DomainReport>& reports) {
  for (auto entry = members_.begin(); entry != members_.end();) {
    const auto& [number, members] = *entry;
    std::vector<int> holders;
    std::vector<int> without;
    for (const int rank : members) {
      (Holds(reports[static_cast<size_t>(rank)], number) ? holders : without).push_back(rank);
    }
    if (!holders.empty() && !without.empty()) {
      return Disagreement(NameOf(number, members), " was abandoned on ", RankNames(without), " and not on ",
                          RankNames(holders), ": abandon it on every rank that it has");
    }
    entry = holders.empty() ? members_.erase(entry) : std::next(entry);
  }
  return Status();
}

Status DomainTable::CheckPassedBy(const Members& ranks, uint64_t number,
                                  const std::vector<DomainReport>& reports) const {
  for (const int rank : ranks) {
    const DomainReport& report = reports[static_cast<size_t>(rank)];
    if (report.passed && report.number == number) continue;
    return Disagreement("ranks disagree on the communicator: some passed ", NameOf(number, MembersOf(number)),
                        ", rank ", rank, " passed ", Passed(report));
  }
  return Status();
}

Status DomainTable::CheckPassedByAll(const std::vector<DomainReport>& reports) const {
  for (const uint64_t number : NumbersPassed(reports)) {
    COMMPOOL_TRY(CheckPassedBy(MembersOf(number), number, reports));
  }
  std::set<int> sizes;
  for (const DomainReport& report : reports) {
    if (IsNew(report)) sizes.insert(report.ranks);
  }
  for (const int size : sizes) COMMPOOL_TRY(CheckNewOfSize(reports, size));
  return Status();
}

Status DomainTable::CheckPassedByHolders(const std::vector<DomainReport>& reports) const {
  for (const uint64_t number : NumbersPassed(reports)) {
    const auto has_it = [&](const DomainReport& report) { return Holds(report, number); };
    COMMPOOL_TRY(CheckPassedBy(RanksWhere(reports, has_it), number, reports));
  }
  return Status();
}

uint64_t DomainTable::Add(const std::vector<Members>& communicators) {
  const uint64_t first = std::exchange(next_, next_ + static_cast<uint64_t>(home_ranks_));
  for (const Members& members : communicators) members_.emplace(first + LowestOf(members), members);
  return first;
}

Result<Members> GatherMembers(const Driver& driver, const Communicator& communicator, int home_rank,
                              uint64_t deadline_ms, UnansweredGathers& unanswered) {
  const auto mine = static_cast<int32_t>(home_rank);
  const std::string sent(reinterpret_cast<const char*>(&mine), sizeof(mine));
  const std::vector<std::string> received = COMMPOOL_TRY(
      GatherOver(driver, communicator, sent,
                 {.call = "register_with",
                  .likely_cause = "ranks passed different communicators (several are registered in one order on every "
                                  "rank), or one has another collective at this place. Abort what was passed"},
                 deadline_ms, unanswered));
  Members members;
  for (const std::string& part : received) {
    int32_t rank = 0;
    std::memcpy(&rank, part.data(), sizeof(rank));
    members.push_back(rank);
  }
  return members;
}

Result<std::optional<uint64_t>> AgreeOnMembers(AgreementChannel& channel, const Result<Members>& mine,
                                               DomainTable& domains) {
  const auto decide = [&](const std::vector<std::string>& contents) {
    const Result<std::vector<Members>> communicators = CommunicatorsOf(contents);
    return Encode(communicators.ok() ? Placed{.first = domains.Add(*communicators)} : Placed{communicators.status()});
  };
  const std::string decision =
      COMMPOOL_TRY(channel.Decide(Encode(MetBy(mine, channel.rank())), "meeting on a communicator", decide));
  const Placed placed = COMMPOOL_TRY(Decode<Placed>(decision, 0));
  COMMPOOL_TRY(placed.status);
  return mine->empty() ? std::nullopt : std::optional(placed.first + LowestOf(*mine));
}

}  // namespace commpool::internal
