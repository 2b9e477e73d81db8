// Which of home's ranks the communicators of a symmetric pool have, and the number by which every rank knows each.
//
// NCCL cannot tell whether two ranks hold the same communicator. So before any NCCL call the ranks compare the size of
// what they passed, and their rank in it. Where a member is missing, all ranks get an error and nobody waits for it.
// Two communicators of one size that ranks mixed up pass this test; an all-gather of home ranks over the communicator
// finds them, within a deadline. Collective calls serve communicators in the order of their numbers. The table lies
// where the channel decides: on rank 0, or on every rank.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "commpool/status.h"
#include "src/library/driver/loader.h"
#include "src/library/registration/agreement_channel.h"
#include "src/library/registration/communicator.h"
#include "src/library/registration/intent.h"
#include "src/library/registration/small_all_gather.h"

namespace commpool::internal {

// What every rank needs to know of the reports of all ranks in a register_with.
Findings FindingsOf(const std::vector<DomainReport>& reports);
// The registrations that some rank passed, ascending, each once.
std::vector<uint64_t> NumbersPassed(const std::vector<DomainReport>& reports);
// For sleep: checks that the windows of each communicator come back in one order on all ranks that have it.
Status CheckSameReturns(const std::vector<DomainReport>& reports);

// A communicator's members: home ranks, the communicator's rank 0 first.
using Members = std::vector<int>;

// Which ranks of home each registered communicator has. A symmetric pool owns one. One thread at a time: the pool's
// collective lock guards it.
class DomainTable {
 public:
  static constexpr uint64_t kHome = 0;

  explicit DomainTable(int home_ranks) : home_ranks_(home_ranks) {}

  // Checks that every member of a registration still has it, and forgets registrations that no rank has any more.
  // kDisagreement where only some ranks have abandoned one: at the next growth the others would wait for them in NCCL.
  Status CheckHeld(const std::vector<DomainReport>& reports);
  // For register_with: checks that every member of each passed communicator passed one like it.
  Status CheckPassedByAll(const std::vector<DomainReport>& reports) const;
  // For deregister: checks that every rank with a passed registration passed it too.
  Status CheckPassedByHolders(const std::vector<DomainReport>& reports) const;

  // Numbers new communicators in the order of their lowest home ranks: the number is that rank on top of the one that
  // it returns.
  uint64_t Add(const std::vector<Members>& communicators);
  void AddHome() { members_[kHome] = MembersOf(kHome); }
  void Remove(uint64_t number) { members_.erase(number); }
  // Removes the numbers from `first` on: their register_with failed on some rank.
  void RemoveFrom(uint64_t first) { members_.erase(members_.lower_bound(first), members_.end()); }
  uint64_t next() const { return next_; }

 private:
  // All ranks of home for a number that is not in the table.
  Members MembersOf(uint64_t number) const;
  Status CheckPassedBy(const Members& ranks, uint64_t number, const std::vector<DomainReport>& reports) const;

  int home_ranks_;
  uint64_t next_ = kHome + 1;
  std::map<uint64_t, Members> members_;
};

// Collective over the new communicator: its members tell each other their home ranks. kDeadlineExceeded where they do
// not meet. The communicator's device must be current.
Result<Members> GatherMembers(const Driver& driver, const Communicator& communicator, int home_rank,
                              uint64_t deadline_ms, UnansweredGathers& unanswered);

// Collective over home: each rank tells which ranks it met on its new communicator (none where it passed none). The
// communicators that follow from all answers get their numbers in `domains`, where the channel decides. Returns the
// number of this rank's communicator. kDisagreement where ranks did not meet. Only the communicator's rank 0 sends the
// list of its members, the others send a hash of it. So the bytes grow with the ranks, and not with their square.
Result<std::optional<uint64_t>> AgreeOnMembers(AgreementChannel& channel, const Result<Members>& mine,
                                               DomainTable& domains);

}  // namespace commpool::internal
