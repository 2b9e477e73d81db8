#include "src/registration/joined_rounds.h"

#include <algorithm>
#include <utility>

#include "src/base/host_failure.h"
#include "src/base/host_patience.h"
#include "src/registration/rank_names.h"

namespace commpool::internal {

namespace {

// What the thread runs a part of.
struct OwnPart {
  JoinedRounds* rounds = nullptr;
  size_t place = 0;
};
thread_local constinit OwnPart own_part;

}  // namespace

class JoinableChannel final : public AgreementChannel {
 public:
  explicit JoinableChannel(std::unique_ptr<AgreementChannel> channel)
      : AgreementChannel(channel->lost_ranks()), channel_(std::move(channel)) {}

  int rank() const override { return channel_->rank(); }
  int ranks() const override { return channel_->ranks(); }
  uint64_t number() const override { return channel_->number(); }
  Result<Verdict> Decide(const std::string& mine, const std::string& step, const Decider& decide) override {
    if (own_part.rounds == nullptr) return channel_->Decide(mine, step, decide);
    return own_part.rounds->Decide(own_part.place, {channel_.get(), &mine, &step, &decide});
  }
  void NoteFailure(const Status& mine) override {
    if (own_part.rounds != nullptr) own_part.rounds->NoteFailure(own_part.place, mine);
  }
  Status FailureBefore() const override {
    return own_part.rounds == nullptr ? Status() : own_part.rounds->FailureBefore();
  }
  void Break(const Status& why) override { channel_->Break(why); }
  std::unique_ptr<BackgroundLine> OpenBackground() override { return channel_->OpenBackground(); }

 private:
  const std::unique_ptr<AgreementChannel> channel_;
};

std::unique_ptr<AgreementChannel> MakeJoinable(std::unique_ptr<AgreementChannel> channel) {
  return std::make_unique<JoinableChannel>(std::move(channel));
}

JoinedRounds::JoinedRounds(const std::vector<std::string>& pools) {
  for (const std::string& name : pools) parts_.push_back({.name = name});
}

void JoinedRounds::Run(size_t place, const std::function<Status()>& part) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return turn_ == place; });
  lock.unlock();
  own_part = {this, place};
  Status status = Attempt(part);
  own_part = {};
  Part& own = parts_[place];
  if (ended_.ok() && own.heard == Heard::kNothing) BestEffort([&] { Insist([&] { ended_ = status; }); });
  lock.lock();
  own.status = std::move(status);
  own.state = State::kEnded;
  PassOn();
}

Status JoinedRounds::Outcome() const {
  const Part* first = nullptr;
  for (const Part& part : parts_) {
    if (part.status.ok()) continue;
    if (part.heard != Heard::kFailureBeside) return part.status;
    if (first == nullptr) first = &part;
  }
  return first == nullptr ? Status() : first->status;
}

void JoinedRounds::PassOn() {
  for (const State next : {State::kMayRun, State::kInRound}) {
    const auto part =
        std::find_if(parts_.begin(), parts_.end(), [&](const Part& candidate) { return candidate.state == next; });
    if (part == parts_.end()) continue;
    turn_ = static_cast<size_t>(part - parts_.begin());
    changed_.notify_all();
    return;
  }
}

void JoinedRounds::NoteFailure(size_t place, const Status& failure) {
  if (!failed_.ok()) return;
  failed_ = Insist([&] { return failure.under("pool " + parts_[place].name + ", in the same call"); });
}

Result<Verdict> JoinedRounds::Decide(size_t place, const Round& round) {
  std::unique_lock lock(mutex_);
  Part& own = parts_[place];
  own.round = round;
  own.state = State::kInRound;
  PassOn();
  changed_.wait(lock, [&] { return turn_ == place; });
  lock.unlock();
  if (own.state == State::kInRound) HoldRound();
  return std::move(*own.verdict);
}

void JoinedRounds::HoldRound() {
  const std::vector<Part*> parts = Insist([&] {
    std::vector<Part*> waiting;
    for (Part& part : parts_) {
      if (part.state == State::kInRound) waiting.push_back(&part);
    }
    return waiting;
  });
  const Result<JoinedVerdict> heard = Attempt([&] { return Ask(parts); });
  for (size_t place = 0; place < parts.size(); ++place) {
    Insist([&] { Tell(*parts[place], heard, place); });
    parts[place]->state = State::kMayRun;
  }
  failed_ = Status();
}

Result<JoinedVerdict> JoinedRounds::Ask(const std::vector<Part*>& parts) const {
  // Over the same channel on every rank, also where they pass their pools in different orders: so they hear of it.
  const Round& carrier = (*std::min_element(parts.begin(), parts.end(), [](const Part* one, const Part* other) {
                           return one->round.channel->number() < other->round.channel->number();
                         }))->round;
  const std::string words = Insist([&] {
    JoinedWords mine{.ended = ended_};
    for (const Part* part : parts) mine.pools.push_back({part->round.channel->number(), part->name, *part->round.mine});
    return Encode(mine);
  });
  const Result<Verdict> verdict =
      carrier.channel->Decide(words, *carrier.step, [&](const std::vector<std::string>& contents) {
        std::vector<const Decider*> deciders;
        for (const Part* part : parts) deciders.push_back(part->round.decide);
        return DecideJoined(contents, deciders);
      });
  if (!verdict.ok()) return verdict.status();
  return Insist([&]() -> Result<JoinedVerdict> {
    std::optional<JoinedVerdict> decoded = DecodeJoinedVerdict(verdict->common, parts.size());
    if (!decoded) return Status(StatusCode::kDisagreement, "rank 0 sent an unreadable decision for several pools");
    return std::move(*decoded);
  });
}

void JoinedRounds::Tell(Part& part, const Result<JoinedVerdict>& heard, size_t place) {
  if (!heard.ok()) {  // the ranks are out of step, with every pool of the call
    part.round.channel->Break(heard.status());
    part.verdict = heard.status();
    part.heard = Heard::kOwnFailure;
  } else if (!heard->failure.ok()) {
    part.verdict = heard->failure;
    part.heard = Heard::kOwnFailure;
  } else if (const auto& [refused, common] = heard->pools[place];
             refused || heard->beside.ok() || part.heard != Heard::kNothing) {
    part.verdict = Verdict{.common = common};
    if (refused && part.heard == Heard::kNothing) part.heard = Heard::kOwnFailure;
  } else {
    part.verdict = heard->beside;
    part.heard = Heard::kFailureBeside;
  }
}

}  // namespace commpool::internal
