#include "src/registration/domain.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "src/registration/small_all_gather.h"
#include "src/registration/wire.h"

namespace commpool::internal {

namespace {

constexpr uint64_t kNoNumber = UINT64_MAX;

Status Disagreement(const std::string& text) { return Status(StatusCode::kDisagreement, text); }

// "rank 0, 2, 3".
std::string RankNames(const std::vector<int>& ranks) {
  std::string names = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t place = 0; place < ranks.size(); ++place) {
    names += (place == 0 ? "" : ", ") + std::to_string(ranks[place]);
  }
  return names;
}

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

// New communicators of one size: each of their ranks was passed as often as their rank 0. Which of them belong together
// cannot be told yet.
Status CheckNewOfSize(const std::vector<DomainClaim>& claims, int size) {
  const auto of_size = [&](const DomainClaim& claim) { return claim.passed && !claim.number && claim.ranks == size; };
  const std::vector<int> passed = RanksWhere(claims, of_size);
  std::vector<int> times(static_cast<size_t>(size), 0);
  for (const int rank : passed) ++times[static_cast<size_t>(claims[static_cast<size_t>(rank)].rank)];
  const int most = *std::max_element(times.begin(), times.end());
  const auto missing = std::find_if(times.begin(), times.end(), [&](int count) { return count < most; });
  if (missing == times.end()) return Status();
  return Disagreement("ranks disagree on the communicator: " +
                      (most == 1 ? "it has " : std::to_string(most) + " were passed that have ") +
                      std::to_string(size) + " ranks, but only " + RankNames(passed) +
                      " of home passed one of that size: nobody passed it as its rank " +
                      std::to_string(missing - times.begin()) +
                      ". Every rank that a communicator has passes it, and the others null; ranks that register "
                      "several do so in one order");
}

}  // namespace

std::string Encode(const DomainClaim& claim) {
  WireWriter writer;
  writer.Number(claim.held.size());
  for (const uint64_t number : claim.held) writer.Number(number);
  writer.Number(claim.passed ? 1 : 0);
  writer.Number(claim.number.value_or(kNoNumber));
  writer.Number(static_cast<uint64_t>(claim.rank));
  writer.Number(static_cast<uint64_t>(claim.ranks));
  return writer.Take();
}

Result<std::vector<DomainClaim>> DecodeClaims(const std::vector<std::string>& claims) {
  std::vector<DomainClaim> decoded;
  for (const std::string& bytes : claims) {
    WireReader reader(bytes);
    DomainClaim claim;
    const uint64_t held = reader.Number();
    for (uint64_t index = 0; index < held && reader.ok(); ++index) claim.held.push_back(reader.Number());
    claim.passed = reader.Number() != 0;
    const uint64_t number = reader.Number();
    if (number != kNoNumber) claim.number = number;
    claim.rank = static_cast<int>(reader.Number());
    claim.ranks = static_cast<int>(reader.Number());
    const bool possible = !claim.passed || (claim.rank >= 0 && claim.rank < claim.ranks);
    if (!reader.ok() || !possible) {
      return Disagreement("rank " + std::to_string(decoded.size()) + " sent an unreadable list of communicators");
    }
    decoded.push_back(std::move(claim));
  }
  return decoded;
}

DomainTable::DomainTable(int home_ranks) : home_ranks_(home_ranks) {}

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

Status DomainTable::CheckPassedByAll(const std::vector<DomainClaim>& claims) const {
  std::set<int> sizes;
  std::set<uint64_t> numbers;
  for (const DomainClaim& claim : claims) {
    if (!claim.passed) continue;
    if (claim.number) {
      numbers.insert(*claim.number);
    } else {
      sizes.insert(claim.ranks);
    }
  }
  for (const uint64_t number : numbers) {
    Members members(static_cast<size_t>(home_ranks_));
    std::iota(members.begin(), members.end(), 0);
    if (const auto found = members_.find(number); found != members_.end()) members = found->second;
    for (const int rank : members) {
      const DomainClaim& claim = claims[static_cast<size_t>(rank)];
      if (claim.passed && claim.number == number) continue;
      return Disagreement("ranks disagree on the communicator: some passed " + NameOf(number, members) + ", rank " +
                          std::to_string(rank) + " passed " + Passed(claim));
    }
  }
  for (const int size : sizes) {
    Status status = CheckNewOfSize(claims, size);
    if (!status.ok()) return status;
  }
  return Status();
}

Status DomainTable::CheckPassedByHolders(const std::vector<DomainClaim>& claims) const {
  for (const DomainClaim& passed : claims) {
    if (!passed.passed || !passed.number) continue;
    const uint64_t number = *passed.number;
    const std::vector<int> others = RanksWhere(claims, [&](const DomainClaim& claim) {
      return Holds(claim, number) && !(claim.passed && claim.number == number);
    });
    if (others.empty()) continue;
    const auto found = members_.find(number);
    return Disagreement("ranks disagree on the communicator: some passed " +
                        NameOf(number, found == members_.end() ? Members() : found->second) + ", rank " +
                        std::to_string(others.front()) + " passed " +
                        Passed(claims[static_cast<size_t>(others.front())]));
  }
  return Status();
}

std::optional<uint64_t> DomainTable::Add(const std::vector<Members>& communicators, int rank) {
  std::optional<uint64_t> mine;
  for (const Members& members : communicators) {
    if (std::find(members.begin(), members.end(), rank) != members.end()) mine = next_;
    members_.emplace(next_++, members);
  }
  return mine;
}

void DomainTable::AddHome() {
  Members& members = members_[kHome];
  members.resize(static_cast<size_t>(home_ranks_));
  std::iota(members.begin(), members.end(), 0);
}

void DomainTable::RemoveFrom(uint64_t first) { members_.erase(members_.lower_bound(first), members_.end()); }

Result<Members> GatherMembers(const Driver& driver, const Communicator& communicator, int home_rank,
                              uint64_t deadline_ms) {
  const auto mine = static_cast<int32_t>(home_rank);
  const std::string sent(reinterpret_cast<const char*>(&mine), sizeof(mine));
  Result<std::vector<std::string>> received =
      GatherOver(driver, communicator, sent,
                 {.call = "register_with",
                  .likely_cause = "ranks passed different communicators (several are registered in one order on every "
                                  "rank), or one has another collective at this place. Abort what was passed"},
                 deadline_ms);
  if (!received.ok()) return received.status();
  Members members;
  for (const std::string& part : *received) {
    int32_t rank = 0;
    std::memcpy(&rank, part.data(), sizeof(rank));
    members.push_back(rank);
  }
  return members;
}

Result<std::vector<Members>> AgreeOnMembers(AgreementChannel& channel, const Result<Members>& mine) {
  WireWriter writer;
  writer.Number(static_cast<uint64_t>(mine.status().code()));
  writer.Text(mine.status().message());
  writer.Number(mine.ok() ? mine->size() : 0);
  if (mine.ok()) {
    for (const int rank : *mine) writer.Number(static_cast<uint64_t>(rank));
  }
  Result<std::vector<std::string>> exchanged = channel.AllGather(writer.Take(), "meeting on a communicator");
  if (!exchanged.ok()) return exchanged.status();

  std::vector<Members> met;
  for (size_t rank = 0; rank < exchanged->size(); ++rank) {
    const std::string name = "rank " + std::to_string(rank);
    WireReader reader((*exchanged)[rank]);
    const auto code = static_cast<StatusCode>(reader.Number());
    const std::string message = reader.Text();
    Members& members = met.emplace_back();
    const uint64_t count = reader.Number();
    for (uint64_t place = 0; place < count && reader.ok(); ++place) {
      members.push_back(static_cast<int>(reader.Number()));
    }
    if (!reader.ok()) return Disagreement(name + " sent an unreadable list of ranks");
    if (code == StatusCode::kOk) continue;
    return Status(code == StatusCode::kDeadlineExceeded ? StatusCode::kDisagreement : code,
                  "meeting on a communicator failed on " + name + ": " + message);
  }
  std::vector<Members> communicators;
  for (size_t rank = 0; rank < met.size(); ++rank) {
    const Members& members = met[rank];
    if (members.empty()) continue;
    for (const int other : members) {
      const bool known = other >= 0 && static_cast<size_t>(other) < met.size();
      if (!known || met[static_cast<size_t>(other)] != members) {
        return Disagreement("rank " + std::to_string(rank) + " met " + RankNames(members) +
                            " on the communicator that it passed, and not all of them met the same");
      }
    }
    if (std::find(communicators.begin(), communicators.end(), members) == communicators.end()) {
      communicators.push_back(members);
    }
  }
  return communicators;
}

}  // namespace commpool::internal
