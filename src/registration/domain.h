// Which of home's ranks the communicators of a symmetric pool have, and the number by which every rank knows each.
//
// NCCL cannot tell whether two ranks hold the same communicator. So before any NCCL call the ranks compare what they
// passed (its size and their rank in it): where a member is missing all hear of it and nobody waits for it. That does
// not find two communicators of one size that were mixed up; an all-gather of home ranks does, within a deadline. The
// numbers are the order of collective calls. The table is kept where the channel decides: on rank 0, or on every rank.
#ifndef COMMPOOL_SRC_REGISTRATION_DOMAIN_H_
#define COMMPOOL_SRC_REGISTRATION_DOMAIN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "commpool/status.h"
#include "src/driver/loader.h"
#include "src/registration/agreement_channel.h"
#include "src/registration/communicator.h"
#include "src/registration/intent.h"
#include "src/registration/unanswered_gathers.h"

namespace commpool::internal {

// The claims of all ranks in a register_with.
Findings FindingsOf(const std::vector<DomainClaim>& claims);
// The registrations that some rank passed, ascending, each once.
std::vector<uint64_t> NumbersPassed(const std::vector<DomainClaim>& claims);

// A communicator's members: home ranks, the communicator's rank 0 first.
using Members = std::vector<int>;

// One thread at a time: the pool's collective lock.
class DomainTable {
 public:
  static constexpr uint64_t kHome = 0;

  explicit DomainTable(int home_ranks) : home_ranks_(home_ranks) {}

  // Checks that every member of a registration has it still; forgets registrations that no rank has any more.
  // kDisagreement where only some ranks have abandoned one: growth would wait for them in NCCL.
  Status CheckHeld(const std::vector<DomainClaim>& claims);
  // For register_with: checks that every member of each passed communicator did pass one like it.
  Status CheckPassedByAll(const std::vector<DomainClaim>& claims) const;
  // For deregister: checks that every rank which has a passed registration has passed it too.
  Status CheckPassedByHolders(const std::vector<DomainClaim>& claims) const;

  // Numbers new communicators, in the order of their lowest home ranks. Returns the number that each home rank got;
  // nothing for one that none of them has.
  std::vector<std::optional<uint64_t>> Add(const std::vector<Members>& communicators);
  void AddHome();
  void Remove(uint64_t number) { members_.erase(number); }
  // Removes the numbers that were added last: a register_with failed on some rank.
  void RemoveFrom(uint64_t first);
  uint64_t next() const { return next_; }

 private:
  // All ranks, of one that is not in the table.
  Members MembersOf(uint64_t number) const;
  Status CheckPassedBy(const Members& ranks, uint64_t number, const std::vector<DomainClaim>& claims) const;

  int home_ranks_;
  uint64_t next_ = kHome + 1;
  std::map<uint64_t, Members> members_;
};

// Collective over the new communicator: its members tell each other their home ranks. kDeadlineExceeded where they do
// not meet. The communicator's device must be current.
Result<Members> GatherMembers(const Driver& driver, const Communicator& communicator, int home_rank,
                              uint64_t deadline_ms, UnansweredGathers& unanswered);

// Collective over home: each rank says whom it met on its new communicator (nobody where it passed none), and the
// communicators that follow are numbered in `domains`, where the channel decides. Returns the number of this rank's.
// kDisagreement where ranks did not meet. The communicator's rank 0 alone sends the list of its members, the others a
// hash of it: all that is sent grows with the ranks, and not with their square.
Result<std::optional<uint64_t>> AgreeOnMembers(AgreementChannel& channel, const Result<Members>& mine,
                                               DomainTable& domains);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_DOMAIN_H_
