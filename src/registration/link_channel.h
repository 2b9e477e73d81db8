// The agreement of one pool over its home's link. Rank 0 gathers all messages, decides, and tells all.
//
// Rank 0 waits until the deadline. The others wait a little longer, so that they still get its verdict, which names the
// missing ranks.
#ifndef COMMPOOL_SRC_REGISTRATION_LINK_CHANNEL_H_
#define COMMPOOL_SRC_REGISTRATION_LINK_CHANNEL_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/registration/agreement_channel.h"
#include "src/registration/home_link.h"

namespace commpool::internal {

// Keeps the link alive, and owns one mailbox in it.
class LinkChannel : public AgreementChannel {
 public:
  LinkChannel(std::shared_ptr<HomeLink> link, uint64_t number, std::chrono::milliseconds deadline);
  // Tells the other ranks that this rank has left.
  ~LinkChannel() override;

  Result<Verdict> Decide(const std::string& mine, const std::string& step, const Decider& decide) override;
  void Break(const Status& why) override;
  std::unique_ptr<BackgroundLine> OpenBackground() override;

 private:
  // Rank 0's side of a round.
  Result<Verdict> Lead(const std::string& mine, const std::string& step, const Decider& decide);
  Result<std::vector<std::string>> Gather(const std::string& mine);
  std::vector<Frame> FramesOf(const Decision& decision) const;
  // The other ranks' side of a round.
  Result<Verdict> Follow(const std::string& mine, const std::string& step);

  // Why the round must fail; OK while it may still succeed. Call it under the link's lock.
  Status Trouble() const;
  // Adds the step and the time that it took to `why`.
  Status Failure(const std::string& step, const Status& why) const;
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

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_LINK_CHANNEL_H_
