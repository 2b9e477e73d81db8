#include "tools/stress/ranks/judge.h"

#include <sys/wait.h>

#include <algorithm>
#include <regex>

namespace commpool::cli::stress_ranks {

namespace {

constexpr int64_t kNanosecondsPerMs = 1'000'000;
constexpr uint64_t kGraceMs = 2000;  // beyond a deadline, or beyond an abort

std::string Text(const std::set<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text.empty() ? "none" : text;
}

class Case {
 public:
  Case(const Schedule& schedule, const std::vector<RankRecord>& records, uint64_t deadline_ms)
      : schedule_(schedule), records_(records), deadline_ms_(deadline_ms) {
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      if (!schedule.IsVictim(rank)) healthy_.push_back(rank);
    }
  }

  std::vector<std::string> Judge() {
    for (int rank = 0; rank < schedule_.ranks; ++rank) JudgeEnd(rank);
    for (const int rank : healthy_) {
      for (const auto& [step, call] : Of(rank).calls) JudgeCall(rank, step, call);
      JudgeLeft(rank);
    }
    for (size_t step = 0; step < schedule_.steps.size(); ++step) JudgeAgreement(step);
    for (const Fault& fault : schedule_.faults) JudgeNoticed(fault);
    return std::move(wrong_);
  }

 private:
  const RankRecord& Of(int rank) const { return records_[static_cast<size_t>(rank)]; }
  void Wrong(int rank, const std::string& what) { wrong_.push_back("rank " + std::to_string(rank) + " " + what); }
  std::string Name(size_t step) const {
    if (step >= kFirstOfRecovery) return "call " + std::to_string(step - kFirstOfRecovery) + " of the recovery";
    return "step " + std::to_string(step) + " (" + Describe(schedule_.steps[step]) + ")";
  }

  const Fault* FaultOf(int rank) const {
    const auto found = std::find_if(schedule_.faults.begin(), schedule_.faults.end(),
                                    [rank](const Fault& fault) { return fault.victim == rank; });
    return found == schedule_.faults.end() ? nullptr : &*found;
  }
  bool Happened(const Fault& fault) const { return !Of(fault.victim).faults.empty(); }
  // Ranks that an error may name: their fault has happened by then.
  std::set<int> FaultyBy(int64_t at_ns) const {
    std::set<int> ranks;
    for (const Fault& fault : schedule_.faults) {
      const bool counts = IsFatal(fault.kind) || fault.kind == Kind::kRefuse;
      if (counts && Happened(fault) && Of(fault.victim).faults.front().at_ns <= at_ns) ranks.insert(fault.victim);
    }
    return ranks;
  }

  void JudgeEnd(int rank) {
    const RankRecord& record = Of(rank);
    const Fault* const fault = FaultOf(rank);
    const bool killed = fault != nullptr && (fault->kind == Kind::kKill || fault->kind == Kind::kOrphan);
    if (!record.wait_status) return Wrong(rank, "does not end");
    if (killed && Happened(*fault)) return;
    if (WIFSIGNALED(*record.wait_status)) {
      return Wrong(rank, "ends by signal " + std::to_string(WTERMSIG(*record.wait_status)));
    }
    if (!record.complete) Wrong(rank, "ends early, code " + std::to_string(WEXITSTATUS(*record.wait_status)));
  }

  void JudgeCall(int rank, size_t step, const CallRecord& call) {
    if (!call.end_ns) return Wrong(rank, "never returns from " + Name(step));
    JudgeTime(rank, step, call);
    if (call.code == StatusCode::kOk || call.code == StatusCode::kExhausted) return;
    const std::string what = "fails in " + Name(step) + ": " + call.message;
    if (step >= kFirstOfRecovery) return Wrong(rank, what);
    const std::set<int> faulty = FaultyBy(*call.end_ns);
    if (faulty.empty()) return Wrong(rank, what + " [though no rank has a fault by then]");
    JudgeNames(rank, step, call, faulty);
  }

  void JudgeTime(int rank, size_t step, const CallRecord& call) {
    const std::optional<int64_t>& aborted = Of(rank).aborted_ns;
    const bool counts_from_abort = aborted && *aborted >= call.begin_ns && *aborted <= *call.end_ns;
    const int64_t from = counts_from_abort ? *aborted : call.begin_ns;
    const uint64_t limit_ms = (counts_from_abort ? 0 : deadline_ms_) + kGraceMs;
    const auto took_ms = static_cast<uint64_t>((*call.end_ns - from) / kNanosecondsPerMs);
    if (took_ms <= limit_ms) return;
    Wrong(rank, "takes " + std::to_string(took_ms) + " ms" + (counts_from_abort ? " after its abort" : "") + " for " +
                    Name(step) + ", where " + std::to_string(limit_ms) + " are allowed");
  }

  // Errors after a loss must name the lost ranks and nobody else, and those healthy ranks that never came so far.
  void JudgeNames(int rank, size_t step, const CallRecord& call, const std::set<int>& faulty) {
    const std::string what = "in " + Name(step) + ": " + call.message;
    const std::vector<int> home = schedule_.HomeOf(schedule_.steps[step].pool, rank);
    std::set<int> named;
    for (const int place : NamedRanks(call.message)) {
      named.insert(place < static_cast<int>(home.size()) ? home[static_cast<size_t>(place)] : place);
    }
    // NCCL's own text begins with the rank that speaks.
    if (call.code == StatusCode::kCommunicatorError) named.erase(rank);
    const auto missing = [&](int one) {
      return faulty.count(one) != 0 || one >= schedule_.ranks || Of(one).calls.count(step) == 0;
    };
    const bool names_one = std::any_of(named.begin(), named.end(), missing);
    if (MustName(rank, step, call.code) && !names_one) {
      Wrong(rank, "names none of the faulty ranks (" + Text(faulty) + ") " + what);
    }
    // A disagreement also names the rank to compare with.
    if (call.code == StatusCode::kDisagreement) return;
    for (const int one : named) {
      if (!missing(one)) Wrong(rank, "names the healthy rank " + std::to_string(one) + " " + what);
    }
  }

  // Where ranks meet for the first time NCCL does not tell who is missing.
  bool MustName(int rank, size_t step, StatusCode code) const {
    const Fault* const first = FaultOf(schedule_.HomeOf(schedule_.steps[step].pool, rank).front());
    const bool meets = schedule_.steps[step].action == Action::kCreate && code == StatusCode::kDeadlineExceeded;
    const auto comes_late = [&](const Fault& fault) {
      const bool before = fault.point == Point::kBetween || fault.point == Point::kCreate ||
                          (fault.point == Point::kConnect && &fault == first);
      return Happened(fault) && fault.step <= step && (before || fault.step < step);
    };
    if (meets && std::any_of(schedule_.faults.begin(), schedule_.faults.end(), comes_late)) return false;
    return code == StatusCode::kRemoteFailure || code == StatusCode::kDeadlineExceeded ||
           code == StatusCode::kOutOfMemory || code == StatusCode::kDisagreement;
  }

  // Where ranks meet NCCL's kernel may still run: a few hundred bytes and a stream stay with the process.
  static bool Meets(Action action) { return action == Action::kCreate || action == Action::kRegister; }
  static bool IsOfMeeting(const std::string& line) {
    return line.rfind("cuMemAlloc memory", 0) == 0 || line.rfind("stream", 0) == 0 ||
           line.rfind("primary context", 0) == 0;
  }
  bool MetNobody(int rank) const {
    const auto& calls = Of(rank).calls;
    return std::any_of(calls.begin(), calls.end(), [this](const auto& call) {
      return call.first < kFirstOfRecovery && call.second.code != StatusCode::kOk &&
             Meets(schedule_.steps[call.first].action);
    });
  }

  // A rank that closes without the others keeps the addresses, because a surviving rank may still write there.
  static bool IsAddresses(const std::string& line) { return line.rfind("reserved addresses", 0) == 0; }
  bool Recovered(int rank) const {
    const auto& calls = Of(rank).calls;
    return std::any_of(calls.begin(), calls.end(), [](const auto& call) { return call.first >= kFirstOfRecovery; });
  }

  void JudgeLeft(int rank) {
    // An abort in the middle of an NCCL call leaves memory that NCCL owns.
    std::vector<std::string> left = Of(rank).left;
    if (MetNobody(rank)) left.erase(std::remove_if(left.begin(), left.end(), IsOfMeeting), left.end());
    if (Recovered(rank)) left.erase(std::remove_if(left.begin(), left.end(), IsAddresses), left.end());
    if (left.empty() || Of(rank).aborted_ns) return;
    Wrong(rank, "leaves " + std::to_string(left.size()) + " things behind, the first of them " + left.front());
  }

  // Whether rank 0 of the home went away while it told the others of a verdict: then only some know it.
  bool DeciderLost(size_t step, int rank) const {
    const Fault* const fault = FaultOf(schedule_.HomeOf(schedule_.steps[step].pool, rank).front());
    return fault != nullptr && IsFatal(fault->kind) && Happened(*fault) && fault->step == step;
  }

  void JudgeAgreement(size_t step) {
    for (const int rank : healthy_) {
      const auto mine = Of(rank).calls.find(step);
      if (mine == Of(rank).calls.end() || !mine->second.end_ns) continue;
      for (const int other : healthy_) {
        const auto theirs = Of(other).calls.find(step);
        if (other <= rank || theirs == Of(other).calls.end() || !theirs->second.end_ns) continue;
        Compare(step, rank, mine->second, other, theirs->second);
      }
    }
  }

  void Compare(size_t step, int rank, const CallRecord& mine, int other, const CallRecord& theirs) {
    const std::vector<int> home = schedule_.HomeOf(schedule_.steps[step].pool, rank);
    const bool together = std::find(home.begin(), home.end(), other) != home.end();
    if (!together || DeciderLost(step, rank)) return;
    const std::string pair = "and rank " + std::to_string(other) + " differ after " + Name(step) + ": ";
    if ((mine.code == StatusCode::kOk) != (theirs.code == StatusCode::kOk)) {
      return Wrong(rank, pair + "\"" + mine.message + "\" and \"" + theirs.message + "\"");
    }
    // Only members of the second communicator have registrations with it.
    const bool alike = schedule_.SecondOf(rank).empty() == schedule_.SecondOf(other).empty();
    if (alike && mine.state != theirs.state) Wrong(rank, pair + mine.state + " and " + theirs.state);
  }

  // A call over a home cannot succeed when its rank is gone, or came in another order.
  void JudgeNoticed(const Fault& fault) {
    const bool stays_gone = fault.kind == Kind::kKill || fault.kind == Kind::kOrphan || fault.kind == Kind::kCrossed;
    if (!stays_gone || !Happened(fault)) return;
    const size_t first = fault.kind == Kind::kCrossed ? fault.step : fault.step + 1;
    for (const int rank : healthy_) {
      for (const auto& [step, call] : Of(rank).calls) {
        if (step < first || step >= kFirstOfRecovery || !IsCollective(schedule_.steps[step].action)) continue;
        const std::vector<int> home = schedule_.HomeOf(schedule_.steps[step].pool, rank);
        const bool concerned = std::find(home.begin(), home.end(), fault.victim) != home.end();
        if (concerned && call.end_ns && call.code == StatusCode::kOk) {
          Wrong(rank, "succeeds in " + Name(step) + " after a " + Describe(fault));
        }
      }
    }
  }

  const Schedule& schedule_;
  const std::vector<RankRecord>& records_;
  const uint64_t deadline_ms_;
  std::vector<int> healthy_;
  std::vector<std::string> wrong_;
};

}  // namespace

std::set<int> NamedRanks(const std::string& message) {
  static const std::regex kName(R"(\branks? (\d+(?:(?:, | and )\d+)*)( of \d+)?)");
  static const std::regex kNumber(R"(\d+)");
  // "these ranks did not connect to 10.77.0.1:4711: 1 3".
  static const std::regex kMissing(R"(did not connect to [\d.]+:\d+:((?: \d+)+))");
  std::set<int> ranks;
  const auto add = [&ranks](const std::string& numbers) {
    for (std::sregex_iterator number(numbers.begin(), numbers.end(), kNumber), end; number != end; ++number) {
      ranks.insert(std::stoi(number->str()));
    }
  };
  for (std::sregex_iterator name(message.begin(), message.end(), kName), end; name != end; ++name) {
    if (!(*name)[2].matched) add((*name)[1]);
  }
  std::smatch missing;
  if (std::regex_search(message, missing, kMissing)) add(missing[1]);
  return ranks;
}

std::vector<std::string> Judge(const Schedule& schedule, const std::vector<RankRecord>& records, uint64_t deadline_ms) {
  return Case(schedule, records, deadline_ms).Judge();
}

}  // namespace commpool::cli::stress_ranks
