// Ranks agree before they act (rule 2): what they tell each other before and after each step of a collective call. One
// decision, made from all messages, reaches every rank, so that all go or none.
//
//   round 1, intent:   what each rank was asked to do, and whether it could
//   round 2, outcome:  of making and mapping memory, before the first NCCL call
//   round 3, outcome:  of registration
//
// A call is for one pool or for several of a rank: each round is one message of a rank, about all of them.
#ifndef COMMPOOL_SRC_REGISTRATION_AGREEMENT_H_
#define COMMPOOL_SRC_REGISTRATION_AGREEMENT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/registration/agreement_channel.h"
#include "src/registration/divergence.h"
#include "src/registration/intent.h"

namespace commpool::internal {

// This rank's calls: the last ones of the first `count`, ascending; empty where there are none. Asked only where the
// sequences differ, to name the first difference.
using CallHistory = std::function<Calls(uint64_t count)>;

// Judges what all ranks say of communicators, rank 0's first, where they agree on all else. It runs where the channel
// decides; every rank gets its findings.
struct ClaimFindings {
  Status status = {};
  Findings findings = {};
};
using ClaimJudge = std::function<ClaimFindings(const std::vector<DomainClaim>& claims)>;

// This rank's part in a call for one of its pools.
struct PoolInCall {
  Intent intent;
  CallHistory history = {};
  ClaimJudge judge = {};
};

// The verdict for the pools of a call: all go on, or none.
struct Agreement {
  Status status = {};
  size_t refused = 0;     // for a failure: the place of the pool that it is about
  bool diverged = false;  // and whether it describes a difference of that pool's sequences
  std::vector<Agreed> pools = {};
};

// Round 1. kDisagreement names the ranks and what differs; a rank that is not ready fails all with its reason. If one
// rank already knows that the sequences differ, all ranks get that answer. A close after all know it compares nothing
// but the call, and ends the pool.
Agreement AgreeOnCall(AgreementChannel& channel, const std::vector<PoolInCall>& pools);

// For a rank that cannot take part at all: it sends only the reason in round 1, so that the others need not wait for
// it. Returns what all ranks return.
Status TellRefusal(AgreementChannel& channel, const Intent& mine);

// Rounds 2 and 3, of each pool: OK where every rank succeeded. Else all ranks get the failure of the lowest rank that
// failed, in the step of that place. A failure of the round itself is every pool's failure.
std::vector<Status> AgreeOnOutcomes(AgreementChannel& channel, const std::vector<Status>& mine,
                                    const std::vector<std::string>& steps);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_AGREEMENT_H_
