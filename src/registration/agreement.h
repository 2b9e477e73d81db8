// Ranks agree before they act (rule 2): what they tell each other before and after each step of a collective call, and
// what follows from it. The same messages lead every rank to the same decision, so that all go or none.
//
//   round 1, intent:   what each rank was asked to do, and whether it could
//   round 2, outcome:  of making and mapping memory, before the first NCCL call
//   round 3, outcome:  of registration
#ifndef COMMPOOL_SRC_REGISTRATION_AGREEMENT_H_
#define COMMPOOL_SRC_REGISTRATION_AGREEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/registration/agreement_channel.h"

namespace commpool::internal {

enum class CollectiveCall : uint32_t { kCreate, kReserve, kReclaim, kTrim, kRegister, kDeregister, kClose, kVerify };

const char* Name(CollectiveCall call);

// What one rank brings to a collective call.
struct Intent {
  CollectiveCall call = CollectiveCall::kReserve;
  uint64_t bytes = 0;          // as the caller asked
  uint64_t segment_index = 0;  // that a new segment would get
  uint64_t granularity = 1;    // of this rank's segments
  uint64_t memory_left = 0;    // on this rank's device; UINT64_MAX where it does not count
  uint64_t live_blocks = 0;
  uint64_t sequence_count = 0;  // calls so far, and their hash
  uint64_t sequence_hash = 0;
  int nccl_version = 0;
  std::string options = {};          // of create: those that have to be the same on every rank
  Status divergence = {};            // the difference between the sequences that this rank has heard of before
  Status readiness = {};             // why this rank cannot take part, if it cannot
  std::vector<uint64_t> freed = {};  // deferred frees of this rank, ascending
  std::string claim = {};            // of communicators: src/registration/domain.h
};

// What follows from the intents of all ranks.
struct Agreed {
  uint64_t granularity = 1;  // the largest of any rank
  uint64_t least_memory_left = 0;
  int rank_with_least_memory = 0;
  uint64_t most_live_blocks = 0;
  int rank_with_most_live_blocks = 0;
  std::vector<uint64_t> freed;      // blocks that every rank has freed, ascending
  std::vector<std::string> claims;  // every rank's, rank 0's first
};

// One past call of a pool's sequence, as text and hash, to trace a disagreement.
struct TracedCall {
  uint64_t number = 0;
  uint64_t hash_after = 0;
  std::string description;
};

// This rank's sequence, to look for a difference from the others'.
class CallHistory {
 public:
  virtual ~CallHistory() = default;
  // Called only where the sequences differ, to name the first call that does.
  virtual std::vector<TracedCall> LastCalls() const = 0;
  // The sequences differ, and every rank hears of it in this round.
  virtual void NoteDivergence(const Status&) const {}
};

// Round 1. kDisagreement names the ranks and what differs; a rank that is not ready fails all with its reason. Where a
// rank has heard before that the sequences differ, all ranks get that answer. A close that comes after all have heard
// compares nothing but the call, and ends the pool.
Result<Agreed> AgreeOnIntent(AgreementChannel& channel, const Intent& mine, const CallHistory& history);

// For a rank that cannot take part at all: round 1 with nothing but the reason, so that the others need not wait for
// it. Returns what all ranks return.
Status TellRefusal(AgreementChannel& channel, const Intent& mine);

// Rounds 2 and 3. OK where every rank succeeded; else all ranks get the failure of the lowest rank that failed.
Status AgreeOnOutcome(AgreementChannel& channel, const Status& mine, const std::string& step);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_AGREEMENT_H_
