// Ranks agree before they act (rule 2): these functions exchange what ranks tell each other before and after each step
// of a collective call. Every rank gets the same decision, so all go on or none. Collective
// (src/library/pool/symmetric) calls them.
//
//   round 1, intent:   what the program asked of each rank, and whether the rank could do it
//   round 2, outcome:  of making and mapping memory, before the first NCCL call
//   round 3, outcome:  of registration
//
// A call is for one pool or for several of a rank: each round is one message of a rank, about all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/library/registration/agreement_channel.h"
#include "src/library/registration/divergence.h"
#include "src/library/registration/intent.h"

namespace commpool::internal {

// Returns the last calls that this rank still knows of its first `count` calls, ascending. It is called only where the
// sequences differ, to name the first difference.
using CallHistory = std::function<Calls(uint64_t count)>;

// Judges what all ranks say of communicators, rank 0's first, once they agree on all else. It runs where the channel
// decides; every rank gets its findings.
using ReportJudge = std::function<Findings(const std::vector<DomainReport>& reports)>;

// This rank's part in a call for one of its pools.
struct PoolInCall {
  Intent intent;
  CallHistory history = {};
  ReportJudge judge = {};
};

// Round 1. kDisagreement names the ranks and their difference; a rank that is not ready fails all with its reason. If
// one rank already knows that the sequences differ, all ranks get that answer. Once all ranks know it, a close compares
// only the call, and ends the pool. Where the round itself fails, the first pool counts as refused.
CallVerdict AgreeOnCall(const PoolChannels& channels, const std::vector<PoolInCall>& pools);

// For a rank that cannot take part at all: it sends only the reason in round 1, so that the others need not wait for
// it. Returns what all ranks return.
Status TellRefusal(const PoolChannels& channels, const Intent& mine);

// Rounds 2 and 3. The answer for a pool is OK where every rank succeeded with it. Else all ranks get the failure of the
// lowest rank that failed, named by the pool's entry of `steps`. If the round itself fails, every pool gets that
// failure.
std::vector<Status> AgreeOnOutcomes(const PoolChannels& channels, const std::vector<Status>& mine,
                                    const std::vector<std::string>& steps);

}  // namespace commpool::internal
