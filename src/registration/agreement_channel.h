// The ranks of a home communicator talk over it, host to host, before a collective step (rule 2).
//
// Agreement needs one operation and no more: every rank says something, and one decision follows from what all have
// said. One thread at a time uses a channel; every rank makes the same calls in the same order. A failure breaks a
// channel, because its ranks are out of step, and every later call says so.
#ifndef COMMPOOL_SRC_REGISTRATION_AGREEMENT_CHANNEL_H_
#define COMMPOOL_SRC_REGISTRATION_AGREEMENT_CHANNEL_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "commpool/commpool.h"
#include "commpool/status.h"
#include "src/base/socket.h"
#include "src/registration/lost_ranks.h"

namespace commpool::internal {

// What follows from what all ranks have said: what every rank gets, and what single ones get beside it, by rank.
struct Decision {
  std::string common = {};
  std::vector<std::string> single = {};  // empty: nobody gets any
};

// A decision as one rank gets it.
struct Verdict {
  std::string common = {};
  std::string single = {};
};

// Everybody's bytes, rank 0's first, to the decision. The same bytes give the same decision, wherever it is made.
using Decider = std::function<Decision(const std::vector<std::string>& contents)>;

class AgreementChannel {
 public:
  virtual ~AgreementChannel() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // Every rank gives some bytes, of any length, and gets the decision that `decide` makes of all of them: on rank 0,
  // or on every rank where the channel takes all bytes to all. Rank 0 is bound by a decision once it has begun to send
  // it. kDeadlineExceeded, naming the ranks that are missing and `step`, where they do not come in time;
  // kRemoteFailure where one has gone.
  virtual Result<Verdict> Decide(const std::string& mine, const std::string& step, const Decider& decide) = 0;

  // The ranks that it knows to be lost; shared, for whoever looks may outlive the channel. Never null.
  const std::shared_ptr<LostRanks>& lost_ranks() const { return lost_ranks_; }

  // Connections beside it, for what ranks tell each other in the background; once. Of rank 0: one to each other rank,
  // rank 1's first; of the others: one to rank 0. None where the channel has no connections of its own.
  virtual std::vector<Connection> TakeBackgroundConnections() { return {}; }

 private:
  const std::shared_ptr<LostRanks> lost_ranks_ = std::make_shared<LostRanks>();
};

// For a home communicator of one rank.
std::unique_ptr<AgreementChannel> MakeSelfChannel();

// Over the caller's own all-gather (MPI, a torch store), which bounds its waits itself.
std::unique_ptr<AgreementChannel> MakeCallerChannel(int rank, int ranks, commpool_all_gather all_gather, void* context);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_AGREEMENT_CHANNEL_H_
