// Several pools of one rank in one collective call. Their parts take turns, in the order of the pools, and where each
// has come to a round these are held as one: one message of this rank, one decision of rank 0.
//
// Each part has a thread of its own, of which one runs at a time, so that NCCL is called in the order of the pools on
// every rank. All or none: what stops one pool stops those beside it, which hear of it in their next round. A pool that
// has heard of a failure goes its way back by itself: nothing that befalls another concerns it any more.
#ifndef COMMPOOL_SRC_REGISTRATION_JOINED_ROUNDS_H_
#define COMMPOOL_SRC_REGISTRATION_JOINED_ROUNDS_H_

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/registration/agreement_channel.h"
#include "src/registration/joined_message.h"

namespace commpool::internal {

class JoinedRounds {
 public:
  // `pools`: their names, in the order of the call.
  explicit JoinedRounds(const std::vector<std::string>& pools);
  JoinedRounds(const JoinedRounds&) = delete;
  JoinedRounds& operator=(const JoinedRounds&) = delete;

  // The part of the pool at `place`, on a thread of its own; returns when it has ended. Each part runs once. Rounds of
  // a joinable channel on this thread are those of all parts.
  void Run(size_t place, const std::function<Status()>& part);
  // Once all have ended: the first failure, and of a pool's own rather than of one beside another.
  Status Outcome() const;

 private:
  friend class JoinableChannel;

  // A round of one pool, as its own channel would hold it.
  struct Round {
    AgreementChannel* channel = nullptr;
    const std::string* mine = nullptr;
    const std::string* step = nullptr;
    const Decider* decide = nullptr;
  };
  enum class State { kMayRun, kInRound, kEnded };
  enum class Heard { kNothing, kOwnFailure, kFailureBeside };
  struct Part {
    std::string name = {};
    State state = State::kMayRun;
    Heard heard = Heard::kNothing;
    Round round = {};
    std::optional<Result<Verdict>> verdict = {};
    Status status = {};  // in the end
  };

  Result<Verdict> Decide(size_t place, const Round& round);
  void NoteFailure(size_t place, const Status& failure);
  Status FailureBefore() const { return ended_.ok() ? failed_ : ended_; }
  // To the next part that may run or, where all wait in a round, to the first of these, which holds it.
  void PassOn();
  // One round of all that wait in one. Their turn comes with what they heard.
  void HoldRound();
  Result<JoinedVerdict> Ask(const std::vector<Part*>& parts) const;
  static void Tell(Part& part, const Result<JoinedVerdict>& heard, size_t place);

  // Not a Mutex of ours: a condition is waited for on it, and no other lock is taken meanwhile.
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t turn_ = 0;
  // Of the part whose turn it is; the others wait.
  std::vector<Part> parts_;
  Status failed_;  // the first failure in the step that the next round is about
  Status ended_;   // the first of a part that ended without having heard of any
};

// `channel`, whose rounds on a thread that runs a part of a JoinedRounds are held there.
std::unique_ptr<AgreementChannel> MakeJoinable(std::unique_ptr<AgreementChannel> channel);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_JOINED_ROUNDS_H_
