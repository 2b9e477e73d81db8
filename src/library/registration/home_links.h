// How a pool agrees over the link of its home, and the links of a process.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/mutex.h"
#include "src/library/driver/loader.h"
#include "src/library/registration/agreement_channel.h"
#include "src/library/registration/communicator.h"
#include "src/library/registration/home_link.h"
#include "src/library/registration/small_all_gather.h"

namespace commpool::internal {

// The agreement of one pool over its home's link. Rank 0 gathers all messages, decides, and tells all.
//
// Rank 0 waits until the deadline. The others wait a little longer, so that they still get its verdict, which names the
// missing ranks. Keeps the link alive, and owns one mailbox in it.
class LinkChannel : public AgreementChannel {
 public:
  LinkChannel(std::shared_ptr<HomeLink> link, uint64_t number, std::chrono::milliseconds deadline);
  // Tells the other ranks that this rank has left.
  ~LinkChannel() override;

  Result<std::string> Decide(const std::string& mine, const std::string& step, const Decider& decide) override;
  void Break(const Status& why) override;
  bool broken() const override { return !failure_.ok() || AgreementChannel::broken(); }
  std::unique_ptr<BackgroundLine> OpenBackground() override;

 private:
  // Rank 0's side of a round.
  Result<std::string> DecideForAll(const std::string& mine, const std::string& step, const Decider& decide);
  Result<std::vector<std::string>> Gather(const std::string& mine);
  // The other ranks' side of a round.
  Result<std::string> Follow(const std::string& mine, const std::string& step);

  // Why the round must fail; OK while it may still succeed. Call it under the link's lock.
  Status WhyRoundFails() const;
  // Adds the step and the time that it took to `why`.
  Status RoundFailure(const std::string& step, const Status& why) const;
  // A frame with the number of this round.
  Frame MakeFrame(FrameKind kind, const std::string& contents, StatusCode code = StatusCode::kOk) const;

  const std::shared_ptr<HomeLink> link_;
  const std::chrono::milliseconds deadline_;
  const std::shared_ptr<Mailbox> mailbox_;
  uint64_t sequence_ = 0;
  Deadline begun_;         // of this round
  std::string last_step_;  // that all ranks went through
  Status failure_;
};

inline constexpr CallSite kToCreate{
    .call = "create",
    .likely_cause =
        "not every rank creates the pool, or one has another collective at this place; a thread that owns "
        "several ranks creates their pools in one call. If a rank is lost, abort the communicator: "
        "ncclCommDestroy would wait for it"};

// The links of a process, by home communicator. Pools of one home share one link; it ends with the last of them. A
// runtime has one such table. Any thread.
//
// A channel opens over the link that pools of its home use already, if all ranks have the same one. Else the ranks open
// a new link: rank 0 listens, and sends its address once over the communicator.
class HomeLinks {
 public:
  // Opens a channel for a new pool of the home, or for what `site` names. Collective over the communicator; its device
  // must be current. Returns within the deadline.
  Result<std::unique_ptr<AgreementChannel>> Open(const Driver& driver, const Communicator& home, uint64_t deadline_ms,
                                                 UnansweredGathers& unanswered, const CallSite& site = kToCreate);

  // The link that pools of this home use on this rank. Null where no pool does, or where the link has lost a rank. The
  // link may belong to an earlier communicator at the same address, so the ranks compare the links' numbers.
  std::shared_ptr<HomeLink> Find(const Communicator& home);
  void Keep(const Communicator& home, const std::shared_ptr<HomeLink>& link);
  // Called when the runtime ends.
  void StopWatching();

 private:
  Mutex mutex_{LockRank::kLeaf};
  std::map<ncclComm_t, std::weak_ptr<HomeLink>> links_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal
