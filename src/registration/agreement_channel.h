// The ranks of a home communicator talk over it, host to host, before a collective step (rule 2).
//
// Agreement needs one all-gather and no more. One thread at a time uses a channel; every rank makes the same calls in
// the same order. A failure breaks a channel, because its ranks are out of step, and every later call says so.
#ifndef COMMPOOL_SRC_REGISTRATION_AGREEMENT_CHANNEL_H_
#define COMMPOOL_SRC_REGISTRATION_AGREEMENT_CHANNEL_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "commpool/commpool.h"
#include "commpool/status.h"
#include "src/base/socket.h"
#include "src/registration/lost_ranks.h"

namespace commpool::internal {

class AgreementChannel {
 public:
  virtual ~AgreementChannel() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // Every rank gives some bytes, of any length; all get everybody's, rank 0's first. kDeadlineExceeded, naming the
  // ranks that are missing and `step`, where they do not come in time; kRemoteFailure where one has gone.
  virtual Result<std::vector<std::string>> AllGather(const std::string& mine, const std::string& step) = 0;

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
