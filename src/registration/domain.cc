#include "src/registration/domain.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "src/base/try.h"
#include "src/registration/rank_names.h"

namespace commpool::internal {

namespace {

Status Disagreement(const std::string& text) { return Status(StatusCode::kDisagreement, text); }

// "ranks 0, 2, 3". Of many ranks it names the first only, because every rank gets the sentence.
std::string RankNames(const std::vector<int>& ranks) { return NamesOfRanks(ranks, 16); }

std::string NameOf(uint64_t number, const Members& members) {
  if (number == DomainTable::kHome) return "home";
  return "registration " + std::to_string(number) + " (" + RankNames(members) + ")";
}

std::string Passed(const DomainClaim& claim) {
  if (!claim.passed) return "null";
  if (claim.number) {
    return *claim.number == DomainTable::kHome ? "home" : "that of registration " + std::to_string(*claim.number);
  }
  return "a new communicator of " + std::to_string(claim.ranks) + " ranks";
}

template <typename Condition>
std::vector<int> RanksWhere(const std::vector<DomainClaim>& claims, Condition condition) {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < claims.size(); ++rank) {
    if (condition(claims[rank])) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

bool Holds(const DomainClaim& claim, uint64_t number) {
  return std::binary_search(claim.held.begin(), claim.held.end(), number);
}

bool IsNew(const DomainClaim& claim) { return claim.passed && !claim.number; }

// Names the ranks that may have made the mistake: "rank 3 passed null, rank 4 a new communicator of 2 ranks".
std::string OthersOf(const std::vector<DomainClaim>& claims, int size) {
  const std::vector<int> null = RanksWhere(claims, [](const DomainClaim& claim) { return !claim.passed; });
  const std::vector<int> different = RanksWhere(
      claims, [&](const DomainClaim& claim) { return claim.passed && !(IsNew(claim) && claim.ranks == size); });
  std::string others;
  if (!null.empty()) others += RankNames(null) + " passed null";
  if (!different.empty()) others += (others.empty() ? "" : ", ") + RankNames(different) + " another communicator";
  return others;
}

// Checks the new communicators of one size: each of their ranks (0, 1 and so on) must have been passed equally often.
// It cannot tell yet which ranks belong together.
Status CheckNewOfSize(const std::vector<DomainClaim>& claims, int size) {
  std::vector<std::vector<int>> passed_as(static_cast<size_t>(size));
  for (size_t rank = 0; rank < claims.size(); ++rank) {
    const DomainClaim& claim = claims[rank];
    if (IsNew(claim) && claim.ranks == size) {
      passed_as[static_cast<size_t>(claim.rank)].push_back(static_cast<int>(rank));
    }
  }
  const auto fewer = [](const std::vector<int>& one, const std::vector<int>& other) {
    return one.size() < other.size();
  };
  const auto most = std::max_element(passed_as.begin(), passed_as.end(), fewer);
  const auto least = std::min_element(passed_as.begin(), passed_as.end(), fewer);
  if (most->size() == least->size()) return Status();
  const auto place = [&](auto entry) { return std::to_string(entry - passed_as.begin()); };
  const std::string others = OthersOf(claims, size);
  return Disagreement("ranks disagree on the communicator: " + RankNames(*most) + " of home passed one of " +
                      std::to_string(size) + " ranks as its rank " + place(most) + ", and " +
                      (least->empty() ? "nobody" : "only " + RankNames(*least)) + " passed one as its rank " +
                      place(least) + (others.empty() ? "" : "; " + others) + ". " +
                      (most->size() == 1 ? "Whoever is that rank did not pass it"
                                         : "One of " + RankNames(*most) + " passed another than its members did") +
                      ": all members of a communicator pass it in the same call, the others null");
}

}  // namespace

Findings FindingsOf(const std::vector<DomainClaim>& claims) {
  Findings findings;
  for (const DomainClaim& claim : claims) {
    findings.any_new = findings.any_new || IsNew(claim);
    findings.home = findings.home || (claim.passed && claim.number == DomainTable::kHome);
  }
  return findings;
}

std::vector<uint64_t> NumbersPassed(const std::vector<DomainClaim>& claims) {
  std::set<uint64_t> numbers;
  for (const DomainClaim& claim : claims) {
    if (claim.passed && claim.number) numbers.insert(*claim.number);
  }
  return {numbers.begin(), numbers.end()};
}

Members DomainTable::MembersOf(uint64_t number) const {
  if (const auto found = members_.find(number); found != members_.end()) return found->second;
  Members all(static_cast<size_t>(home_ranks_));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Status DomainTable::CheckHeld(const std::vector<DomainClaim>& claims) {
  for (auto entry = members_.begin(); entry != members_.end();) {
    const auto& [number, members] = *entry;
    std::vector<int> holders;
    std::vector<int> without;
    for (const int rank : members) {
      (Holds(claims[static_cast<size_t>(rank)], number) ? holders : without).push_back(rank);
    }
    if (!holders.empty() && !without.empty()) {
      return Disagreement(NameOf(number, members) + " was abandoned on " + RankNames(without) + " and not on " +
                          RankNames(holders) + ": abandon it on every rank that it has");
    }
    entry = holders.empty() ? members_.erase(entry) : std::next(entry);
  }
  return Status();
}

Status DomainTable::CheckPassedBy(const Members& ranks, uint64_t number, const std::vector<DomainClaim>& claims) const {
  for (const int rank : ranks) {
    const DomainClaim& claim = claims[static_cast<size_t>(rank)];
    if (claim.passed && claim.number == number) continue;
    return Disagreement("ranks disagree on the communicator: some passed " + NameOf(number, MembersOf(number)) +
                        ", rank " + std::to_string(rank) + " passed " + Passed(claim));
  }
  return Status();
}

Status DomainTable::CheckPassedByAll(const std::vector<DomainClaim>& claims) const {
  for (const uint64_t number : NumbersPassed(claims)) {
    COMMPOOL_TRY(CheckPassedBy(MembersOf(number), number, claims));
  }
  std::set<int> sizes;
  for (const DomainClaim& claim : claims) {
    if (IsNew(claim)) sizes.insert(claim.ranks);
  }
  for (const int size : sizes) COMMPOOL_TRY(CheckNewOfSize(claims, size));
  return Status();
}

Status DomainTable::CheckPassedByHolders(const std::vector<DomainClaim>& claims) const {
  for (const uint64_t number : NumbersPassed(claims)) {
    const auto has_it = [&](const DomainClaim& claim) { return Holds(claim, number); };
    COMMPOOL_TRY(CheckPassedBy(RanksWhere(claims, has_it), number, claims));
  }
  return Status();
}

std::vector<std::optional<uint64_t>> DomainTable::Add(const std::vector<Members>& communicators) {
  std::vector<std::optional<uint64_t>> numbers(static_cast<size_t>(home_ranks_));
  for (const Members& members : communicators) {
    for (const int rank : members) numbers[static_cast<size_t>(rank)] = next_;
    members_.emplace(next_++, members);
  }
  return numbers;
}

void DomainTable::AddHome() { members_[kHome] = MembersOf(kHome); }

void DomainTable::RemoveFrom(uint64_t first) { members_.erase(members_.lower_bound(first), members_.end()); }

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

}  // namespace commpool::internal
