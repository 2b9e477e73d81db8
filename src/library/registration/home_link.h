// The connections between the ranks of one home: every other rank has one to rank 0. All pools of that home share them;
// each pool has a channel, with a number.
//
// A thread that waits in a round reads for everybody: it puts messages for other channels into their mailboxes. So a
// round needs no change of threads. The link has one thread of its own, the watcher. It reads when
// nobody waits, sends heartbeats, notices lost ranks, calls their listeners, and does the channels' work in the
// background. A rank is lost when its connection ends without a goodbye, or when it is silent past the deadline. Rank 0
// tells the others. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/function_ref.h"
#include "src/library/base/socket.h"
#include "src/library/registration/agreement_channel.h"
#include "src/library/registration/frame_stream.h"
#include "src/library/registration/lost_ranks.h"
#include "src/library/registration/rank_admission.h"
#include "src/library/registration/readiness_set.h"

namespace commpool::internal {

// The number of a link's first channel.
constexpr uint64_t kFirstChannel = 1;

// What went over a link since it was opened.
struct LinkTraffic {
  uint64_t messages = 0;  // sent and received
  uint64_t bytes = 0;     // of their contents and headers
};

// The messages for one channel of a home link. Any reader of the link fills it, the channel empties it. The link's lock
// guards it.
struct Mailbox {
  // Messages of rounds. On rank 0 those of the others, by rank; on the others rank 0's decisions, in place 0. There may
  // be several decisions: rank 0 tells at once if the next round cannot happen.
  std::vector<std::deque<Frame>> rounds;
  size_t ranks_heard = 0;
  Deadline first_came;  // when the round's first message came

  std::map<int, std::string> left;  // ranks that use the channel no more, and why
  std::deque<BackgroundMessage> background;

  explicit Mailbox(int ranks) : rounds(static_cast<size_t>(ranks)) {}

  void PutRound(int rank, Frame frame) {
    std::deque<Frame>& heard = rounds[static_cast<size_t>(rank)];
    if (ranks_heard == 0) first_came = std::chrono::steady_clock::now();
    if (heard.empty()) ++ranks_heard;
    heard.push_back(std::move(frame));
  }
  // Takes the oldest message of each rank, by rank.
  std::vector<std::optional<Frame>> TakeRound() {
    std::vector<std::optional<Frame>> first(rounds.size());
    ranks_heard = 0;
    for (size_t rank = 0; rank < rounds.size(); ++rank) {
      std::deque<Frame>& heard = rounds[rank];
      if (heard.empty()) continue;
      first[rank] = std::move(heard.front());
      heard.pop_front();
      if (!heard.empty()) ++ranks_heard;
    }
    return first;
  }
};

// This rank's end of a link. The channels of its pools own it together (HomeLinks finds it for the next pool).
class HomeLink {
 public:
  // Opens a link over TCP. On rank 0: waits for every other rank. If some do not come, the others get that error in
  // their first round. kOutOfMemory where the system has no descriptor or thread left.
  static Result<std::shared_ptr<HomeLink>> Accept(const LinkOptions& options, Listener listener);
  // On the other ranks.
  static Result<std::shared_ptr<HomeLink>> Join(const LinkOptions& options, const std::string& address);
  // Says goodbye. What was sent before arrives.
  ~HomeLink();
  // Ends the watcher. From then on the link notices losses only while somebody waits in a round.
  void StopWatching();
  // For tests: ends the connections without a goodbye, as the death of a process does.
  void Break();

  int rank() const { return options_.rank; }
  int ranks() const { return options_.ranks; }
  // The link's number: the same on all ranks, and different from that of every other link.
  uint64_t id() const;
  const std::shared_ptr<LostRanks>& lost_ranks() const { return lost_ranks_; }

  // The number that the next channel of this rank would get.
  uint64_t next_channel() const;
  // Opens a channel. No later channel gets a number up to this one. `deadline` counts for the whole link: a rank that
  // is silent past the shortest deadline of any channel is lost.
  std::shared_ptr<Mailbox> OpenChannel(uint64_t number, std::chrono::milliseconds deadline);
  // Ends a channel, and tells the peers why.
  void EndChannel(uint64_t number, const std::string& why);

  // Waits until `done`, called under the link's lock, returns true; false where the deadline passes first, or a
  // signal's handler ends the wait. REQUIRES: the caller holds no lock that a free takes.
  bool Await(Deadline deadline, FunctionRef<bool()> done);
  // Reads what is there, unless another thread reads already.
  void ReadNow();
  // Runs `part` under the link's lock.
  void WithLock(FunctionRef<void()> part);
  // Sends to rank 0; rank 0 sends to every other rank. Never waits: bytes that the socket does not take yet go later.
  void Send(const Frame& frame);
  // Sends to all ranks or to none: nobody gets the frame where `objection`, which runs under the lock, returns an
  // error.
  Status SendUnless(FunctionRef<Status()> objection, const Frame& frame);
  // Waits until everything is sent to the ranks that are still there.
  void Flush(Deadline deadline);
  bool HasUnsent() const;  // to those
  // Why nothing more comes from the rank; empty while it is there.
  std::string WhyGone(int rank) const;

  // From now on the watcher calls `work` whenever it wakes.
  void StartWork(uint64_t channel, std::function<void()> work);
  // Returns once the work no longer runs.
  void StopWork(uint64_t channel);
  void WakeWatcher() { ends_.Wake(); }

  LinkTraffic traffic() const;

 private:
  // The rank at the other end of a connection.
  struct Peer {
    Deadline heard;                         // when its last bytes came
    std::chrono::milliseconds patience{0};  // until its first bytes come, it may be silent this much longer than others
    bool goodbye = false;
    std::string ended = {};  // why nothing more comes
  };

  HomeLink(const LinkOptions& options, ReadinessSet input, ReadinessSet ends);
  // On rank 0 connection i leads to rank i + 1. The others have one connection, to rank 0.
  static Result<std::shared_ptr<HomeLink>> Make(const LinkOptions& options, std::vector<Connection> connections);

  int RankOf(size_t index) const { return rank() == 0 ? static_cast<int>(index) + 1 : 0; }
  size_t IndexOf(int rank) const { return rank == 0 ? 0 : static_cast<size_t>(rank - 1); }
  Status AddPeer(Connection connection);
  // Makes this thread the one reader, and reads until something comes or the deadline passes, without the lock
  // meanwhile. REQUIRES: no other thread reads.
  void ReadForAll(Deadline deadline) COMMPOOL_REQUIRES(mutex_);
  // Reads for all, or waits for the thread that does, until something comes or the deadline passes.
  void AwaitNews(Deadline deadline) COMMPOOL_REQUIRES(mutex_);
  // For the watcher. `unwatched` is time in which this process did not run: it does not count as the peers' silence.
  void Watch();
  void NoteSilentRanks(std::chrono::milliseconds unwatched);
  // Takes what one look at a connection has read.
  void Take(size_t index, std::vector<Frame> frames) COMMPOOL_REQUIRES(mutex_);
  void TakeFrame(int rank, Frame frame) COMMPOOL_REQUIRES(mutex_);
  void QueueFor(size_t index, const Frame& frame) COMMPOOL_REQUIRES(mutex_);
  void QueueForAll(const Frame& frame) COMMPOOL_REQUIRES(mutex_);
  void NoteLost(int rank, const std::string& how) COMMPOOL_REQUIRES(mutex_);
  const std::shared_ptr<Mailbox>& MailboxOf(uint64_t channel) COMMPOOL_REQUIRES(mutex_);
  // Whether something is unsent to a rank that is still there.
  bool OwesBytes() const COMMPOOL_REQUIRES(mutex_);

  const LinkOptions options_;
  const std::shared_ptr<LostRanks> lost_ranks_ = std::make_shared<LostRanks>();
  ReadinessSet input_;

  mutable Mutex mutex_{LockRank::kLeaf};
  Condition changed_;
  // Of each peer. Only the thread that reads receives; who sends holds the mutex.
  std::vector<FrameStream> streams_;
  bool someone_reads_ COMMPOOL_GUARDED_BY(mutex_) = false;
  std::vector<Peer> peers_ COMMPOOL_GUARDED_BY(mutex_);
  uint64_t next_channel_ COMMPOOL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, std::shared_ptr<Mailbox>> mailboxes_ COMMPOOL_GUARDED_BY(mutex_);
  std::chrono::milliseconds silence_ COMMPOOL_GUARDED_BY(mutex_);
  LinkTraffic traffic_ COMMPOOL_GUARDED_BY(mutex_);

  ReadinessSet ends_;  // the watcher wakes when a connection ends, and never for the bytes of a round
  std::atomic<bool> ending_{false};
  Mutex work_mutex_{LockRank::kGrowth};  // held while work runs, which takes the locks of its channel and of the link
  std::map<uint64_t, std::function<void()>> work_ COMMPOOL_GUARDED_BY(work_mutex_);
  std::thread watcher_;
};

}  // namespace commpool::internal
