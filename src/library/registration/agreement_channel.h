// The host-to-host channel between the ranks of a home, for agreement before a collective step (rule 2).
//
// Agreement needs one operation: every rank sends a message, and gets one decision made from all messages. One thread
// at a time uses a channel; every rank makes the same calls in the same order. A failure breaks a channel, because its
// ranks are out of step; every later call then fails too.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "commpool/commpool.h"
#include "commpool/status.h"
#include "src/library/registration/lost_ranks.h"

namespace commpool::internal {

// Makes the decision from all ranks' bytes, rank 0's first. The same bytes give the same decision on every rank.
using Decider = std::function<std::string(const std::vector<std::string>& contents)>;

// A message between rounds, as it arrives.
struct BackgroundMessage {
  int rank = 0;  // the sender
  std::string contents;
};

// Whether a call with this failure has broken its channel. A broken channel stays broken, even if the missing rank was
// only late.
inline bool BreaksChannel(const Status& status) {
  return status.code() == StatusCode::kRemoteFailure || status.code() == StatusCode::kDeadlineExceeded;
}

// Sends and receives messages between rounds. No call waits for a peer. A pool's Publisher owns one.
class BackgroundLine {
 public:
  virtual ~BackgroundLine() = default;

  // `work` is called on the link's own thread, when it is woken and whenever something may have come.
  virtual void Start(std::function<void()> work) = 0;
  // Returns once the work no longer runs.
  virtual void Stop() = 0;
  // Any thread; a system call and no lock.
  virtual void Wake() = 0;

  // False while earlier bytes are still queued: the caller then keeps its new ones.
  virtual bool takes_more() = 0;
  // Sends to rank 0; rank 0 sends to every other rank.
  virtual void Send(const std::string& message) = 0;
  virtual std::deque<BackgroundMessage> Receive() = 0;
  // Whether nothing more comes from the rank.
  virtual bool HasGone(int rank) = 0;
};

// One pool's way to agree with the other ranks of its home. Each pool owns one; its collective calls use it.
class AgreementChannel {
 public:
  virtual ~AgreementChannel() = default;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  // The channel's number in its home, the same on every rank; 0 where its home numbers no channels.
  uint64_t number() const { return number_; }

  // Every rank sends bytes of any length, and gets the decision that `decide` makes of all of them. `decide` runs on
  // rank 0, or on every rank where the channel brings all bytes to all. Once rank 0 has begun to send a decision, it
  // must keep it. kDeadlineExceeded, with the missing ranks and `step`, where ranks do not come in time; kRemoteFailure
  // where one has gone.
  virtual Result<std::string> Decide(const std::string& mine, const std::string& step, const Decider& decide) = 0;
  // Call it when a round for this channel went over another channel and failed: the ranks are out of step here too.
  virtual void Break(const Status& why) = 0;

  // Whether no later round can succeed, as far as this rank knows.
  virtual bool broken() const { return lost_ranks_->any(); }
  // The lost ranks that the channel knows of. Shared, because a reader may outlive the channel. Never null.
  const std::shared_ptr<LostRanks>& lost_ranks() const { return lost_ranks_; }

  // The line for messages between rounds. Null where the channel has no connections of its own.
  virtual std::unique_ptr<BackgroundLine> OpenBackground() { return nullptr; }

 protected:
  AgreementChannel(int rank, int ranks, uint64_t number = 0,
                   std::shared_ptr<LostRanks> lost_ranks = std::make_shared<LostRanks>())
      : rank_(rank), ranks_(ranks), number_(number), lost_ranks_(std::move(lost_ranks)) {}

 private:
  const int rank_;
  const int ranks_;
  const uint64_t number_;
  const std::shared_ptr<LostRanks> lost_ranks_;
};

// One round for all pools of a call, by the channels that they have in one home. It goes over the channel with the
// lowest number. That is the same channel on every rank, even where ranks pass their pools in different orders, so the
// ranks can tell each other about that. A round that fails breaks the channels of all pools. REQUIRES: at least one.
using PoolChannels = std::vector<AgreementChannel*>;
Result<std::string> DecideTogether(const PoolChannels& channels, const std::string& mine, const std::string& step,
                                   const Decider& decide);

// For a home communicator of one rank.
std::unique_ptr<AgreementChannel> MakeSelfChannel();

// Over the program's own all-gather (MPI, a torch store). That function limits its waits itself.
std::unique_ptr<AgreementChannel> MakeCallerChannel(int rank, int ranks, commpool_all_gather all_gather, void* context);

}  // namespace commpool::internal
