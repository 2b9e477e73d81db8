#include "src/library/registration/home_links.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "src/library/base/try.h"
#include "src/library/registration/rank_admission.h"

namespace commpool::internal {

namespace {

using std::chrono::milliseconds;

// The others wait this much longer than rank 0, so that its verdict arrives first.
constexpr milliseconds kVerdictGrace{1000};

milliseconds Since(Deadline moment) {
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - moment);
}

// The background line of a channel. It may outlive the channel: the mailbox stays, and nothing more comes into it.
class LinkLine : public BackgroundLine {
 public:
  LinkLine(std::shared_ptr<HomeLink> link, uint64_t number, std::shared_ptr<Mailbox> mailbox)
      : link_(std::move(link)), number_(number), mailbox_(std::move(mailbox)) {}

  void Start(std::function<void()> work) override { link_->StartWork(number_, std::move(work)); }
  void Stop() override { link_->StopWork(number_); }
  void Wake() override { link_->WakeWatcher(); }
  bool takes_more() override { return !link_->HasUnsent(); }
  void Send(const std::string& message) override {
    link_->Send(Frame{.kind = FrameKind::kBackground, .channel = number_, .contents = message});
  }
  std::deque<BackgroundMessage> Receive() override {
    std::deque<BackgroundMessage> messages;
    link_->WithLock([&] { messages.swap(mailbox_->background); });
    return messages;
  }
  bool HasGone(int rank) override {
    bool left = false;
    link_->WithLock([&] { left = mailbox_->left.contains(rank); });
    return left || !link_->WhyGone(rank).empty();
  }

 private:
  const std::shared_ptr<HomeLink> link_;
  const uint64_t number_;
  const std::shared_ptr<Mailbox> mailbox_;
};

bool AllHaveTheLink(const std::vector<Introduction>& all) {
  const uint64_t link = all.front().link;
  return link != 0 && std::ranges::all_of(all, [&](const Introduction& one) { return one.link == link; });
}

}  // namespace

LinkChannel::LinkChannel(std::shared_ptr<HomeLink> link, uint64_t number, milliseconds deadline)
    : AgreementChannel(link->rank(), link->ranks(), number, link->lost_ranks()),
      link_(std::move(link)),
      deadline_(deadline),
      mailbox_(link_->OpenChannel(number, deadline)) {}

LinkChannel::~LinkChannel() { link_->EndChannel(number(), "it has ended its pool"); }

std::unique_ptr<BackgroundLine> LinkChannel::OpenBackground() {
  return std::make_unique<LinkLine>(link_, number(), mailbox_);
}

Result<std::string> LinkChannel::Decide(const std::string& mine, const std::string& step, const Decider& decide) {
  if (!failure_.ok()) return failure_.under(step + ": an earlier call of the ranks failed");
  ++sequence_;
  begun_ = std::chrono::steady_clock::now();
  Result<std::string> round = rank() == 0 ? DecideForAll(mine, step, decide) : Follow(mine, step);
  last_step_ = step;
  failure_ = round.status();
  return round;
}

void LinkChannel::Break(const Status& why) {
  if (!failure_.ok()) return;
  failure_ = why;
  if (rank() == 0) return;  // the channel that carried the round tells the others
  link_->Send(MakeFrame(FrameKind::kLeft, why.message()));
}

Status LinkChannel::WhyRoundFails() const {
  if (const Status lost = link_->lost_ranks()->status(); !lost.ok()) {
    return last_step_.empty() ? lost : Failure(lost.code(), lost.message(), ", in \"", last_step_, "\" or after it");
  }
  if (mailbox_->left.empty()) return Status();
  const auto& [rank, why] = *mailbox_->left.begin();
  return RemoteFailure("missing: ", RankName(static_cast<size_t>(rank)), ": ", why);
}

Status LinkChannel::RoundFailure(const std::string& step, const Status& why) const {
  return why.under(step + " of " + std::to_string(ranks()) + " ranks ended after " +
                   std::to_string(Since(begun_).count()) + " ms");
}

Frame LinkChannel::MakeFrame(FrameKind kind, const std::string& contents, StatusCode code) const {
  return Frame{kind, code, number(), sequence_, contents};
}

Result<std::vector<std::string>> LinkChannel::Gather(const std::string& mine) {
  const auto others = static_cast<size_t>(ranks() - 1);
  link_->ReadNow();  // a rank whose message is here may have given up since
  Deadline deadline = begun_ + deadline_;
  milliseconds late{0};
  link_->WithLock([&] {
    if (mailbox_->ranks_heard == 0) return;
    deadline = std::min(deadline, mailbox_->first_came + deadline_);
    late = Since(mailbox_->first_came);
  });
  if (late > deadline_) {  // the others have given this round up, or are about to
    return DeadlineExceeded("missing: rank 0: it came ", late.count(), " ms after another rank");
  }
  Status failure;
  static_cast<void>(link_->Await(deadline, [&] {
    failure = WhyRoundFails();
    return !failure.ok() || mailbox_->ranks_heard >= others;
  }));
  if (!failure.ok()) return failure;
  std::vector<std::optional<Frame>> heard;
  link_->WithLock([&] { heard = mailbox_->TakeRound(); });
  std::vector<std::string> contents(others + 1);
  contents[0] = mine;
  std::string missing;
  for (size_t other = 1; other <= others; ++other) {
    std::optional<Frame>& frame = heard[other];
    if (!frame) missing += (missing.empty() ? "" : "; ") + RankName(other) + ": no answer before the deadline";
    if (frame && frame->sequence != sequence_) {
      return Disagreement(RankName(other), " is at step ", frame->sequence, ", rank 0 at ", sequence_);
    }
    if (frame) contents[other] = std::move(frame->contents);
  }
  if (!missing.empty()) return DeadlineExceeded("missing: ", missing);
  return contents;
}

Result<std::string> LinkChannel::DecideForAll(const std::string& mine, const std::string& step, const Decider& decide) {
  const Result<std::vector<std::string>> contents = Gather(mine);
  Status failure = contents.status();
  std::string decision;
  if (contents.ok()) {
    decision = decide(*contents);
    // Once rank 0 begins to send the decision, it must keep it. The next round tells of ranks that are lost from then
    // on.
    failure = link_->SendUnless([this] { return WhyRoundFails(); }, MakeFrame(FrameKind::kDecision, decision));
  }
  if (!failure.ok()) {
    failure = RoundFailure(step, failure);
    link_->Send(MakeFrame(FrameKind::kDecision, failure.message(), failure.code()));
    return failure;
  }
  link_->Flush(begun_ + deadline_);
  return decision;
}

Result<std::string> LinkChannel::Follow(const std::string& mine, const std::string& step) {
  link_->Send(MakeFrame(FrameKind::kSaid, mine));
  std::optional<Frame> frame;
  Status failure;
  const bool heard = link_->Await(begun_ + deadline_ + kVerdictGrace, [&] {
    if (mailbox_->ranks_heard != 0) {
      frame = std::move(mailbox_->TakeRound()[0]);
      return true;
    }
    failure = WhyRoundFails();
    return !failure.ok();
  });
  if (!heard) {
    const std::string why = "rank 0: no answer before the deadline";
    link_->Send(MakeFrame(FrameKind::kLeft, step + " was given up: " + why));
    return RoundFailure(step, DeadlineExceeded("missing: ", why));
  }
  if (!frame) return RoundFailure(step, failure);
  if (frame->code != StatusCode::kOk) return Status(frame->code, frame->contents);
  if (frame->sequence != sequence_) {
    return RoundFailure(step, Disagreement("rank 0 is at step ", frame->sequence, ", this rank at ", sequence_));
  }
  return std::move(frame->contents);
}

Result<std::unique_ptr<AgreementChannel>> HomeLinks::Open(const Driver& driver, const Communicator& home,
                                                          uint64_t deadline_ms, UnansweredGathers& unanswered,
                                                          const CallSite& site) {
  if (home.ranks == 1) return MakeSelfChannel();
  const std::chrono::milliseconds deadline(deadline_ms);
  const auto channel_of = [&](const std::shared_ptr<HomeLink>& link, uint64_t number) {
    return std::unique_ptr<AgreementChannel>(std::make_unique<LinkChannel>(link, number, deadline));
  };
  const std::shared_ptr<HomeLink> existing = Find(home);
  std::optional<Listener> listener;  // even if rank 0 has a link already: other ranks may have none
  // Do not return an error here: the other ranks would wait for this one in NCCL's call.
  Introduction mine = Introduce(home.rank, listener);
  if (existing != nullptr) {
    mine.link = existing->id();
    mine.next_channel = existing->next_channel();
  }
  std::vector<std::string> introductions =
      COMMPOOL_TRY(GatherOver(driver, home, Pad(mine), site, deadline_ms, unanswered));
  const std::vector<Introduction> all = COMMPOOL_TRY(DecodePadded(std::move(introductions)));
  // Ranks count differently after a create that failed on some of them. The highest of their numbers is free on all.
  const uint64_t next = std::ranges::max_element(all, {}, &Introduction::next_channel)->next_channel;
  if (AllHaveTheLink(all)) return channel_of(existing, next);
  COMMPOOL_TRY(CheckReach(all).under(site.call));
  const LinkOptions options{.rank = home.rank, .ranks = home.ranks, .deadline = deadline, .key = all.front().key};
  const std::shared_ptr<HomeLink> link = COMMPOOL_TRY(listener ? HomeLink::Accept(options, std::move(*listener))
                                                               : HomeLink::Join(options, all.front().address));
  Keep(home, link);
  return channel_of(link, kFirstChannel);
}

std::shared_ptr<HomeLink> HomeLinks::Find(const Communicator& home) {
  std::shared_ptr<HomeLink> link;  // declared before the lock: if it is the last, the link ends after the lock
  {
    MutexLock lock(mutex_);
    std::erase_if(links_, [](const auto& entry) { return entry.second.expired(); });
    if (const auto found = links_.find(home.handle); found != links_.end()) link = found->second.lock();
  }
  const bool usable =
      link != nullptr && link->rank() == home.rank && link->ranks() == home.ranks && !link->lost_ranks()->any();
  return usable ? link : nullptr;
}

void HomeLinks::Keep(const Communicator& home, const std::shared_ptr<HomeLink>& link) {
  MutexLock lock(mutex_);
  links_[home.handle] = link;
}

void HomeLinks::StopWatching() {
  std::vector<std::shared_ptr<HomeLink>> all;
  {
    MutexLock lock(mutex_);
    for (const auto& [handle, link] : links_) {
      if (std::shared_ptr<HomeLink> alive = link.lock()) all.push_back(std::move(alive));
    }
  }
  for (const std::shared_ptr<HomeLink>& link : all) link->StopWatching();
}

}  // namespace commpool::internal
