// The connections between the ranks of one home, shared by all pools that are made across it: one to rank 0 for each
// other rank. Each pool has a channel in it, by number.
//
// A thread that waits in a round reads for all: it puts messages for others into their mailboxes, so a round needs no
// change of threads. The link's one thread, the watcher (link_watcher.cc), reads where nobody waits, sends heartbeats,
// notices lost ranks (their connection ended without a goodbye, or they are silent past the deadline), calls the
// listeners, and does the channels' work in the background. Rank 0 tells the others. Any thread.
#ifndef COMMPOOL_SRC_REGISTRATION_HOME_LINK_H_
#define COMMPOOL_SRC_REGISTRATION_HOME_LINK_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "commpool/status.h"
#include "src/base/socket.h"
#include "src/registration/frame_stream.h"
#include "src/registration/lost_ranks.h"
#include "src/registration/mailbox.h"
#include "src/registration/rank_admission.h"
#include "src/registration/readiness_set.h"

namespace commpool::internal {

// Of the first channel of a link.
constexpr uint64_t kFirstChannel = 1;

struct LinkTraffic {
  uint64_t messages = 0;  // sent and received
  uint64_t bytes = 0;     // of their contents and headers
};

class HomeLink {
 public:
  // Opens it over TCP. Rank 0 waits for every other rank. If some do not come, those that did hear it in their first
  // round. kOutOfMemory where the system has no descriptor or thread left.
  static Result<std::shared_ptr<HomeLink>> Accept(const LinkOptions& options, Listener listener);
  // Of the ranks other than 0.
  static Result<std::shared_ptr<HomeLink>> Join(const LinkOptions& options, const std::string& address);
  // Says goodbye. What was sent before arrives.
  ~HomeLink();
  // Ends the watcher: from then on losses are noticed only while somebody waits.
  void StopWatching();
  // For tests: ends the connections without a word, as peers see a death.
  void Break();

  int rank() const { return options_.rank; }
  int ranks() const { return options_.ranks; }
  // The link's number: the same on all ranks, and of no other link.
  uint64_t id() const;
  const std::shared_ptr<LostRanks>& lost_ranks() const { return lost_ranks_; }

  // The number that the next channel of this rank would get.
  uint64_t next_channel() const;
  // The numbers below it are used up. A rank that is silent past the shortest deadline of any channel is lost.
  std::shared_ptr<Mailbox> OpenChannel(uint64_t number, std::chrono::milliseconds deadline);
  // Tells the peers why.
  void EndChannel(uint64_t number, const std::string& why);

  // Waits until `done`, called under the link's lock, returns true; false where the deadline passes first.
  bool Await(Deadline deadline, const std::function<bool()>& done);
  // Reads what is there, unless somebody else reads already.
  void ReadNow();
  // Runs `part` under the link's lock.
  void WithLock(const std::function<void()>& part);
  // Sends to rank 0; rank 0 sends to every other rank. Never waits: the rest goes as the socket takes it.
  void Send(const Frame& frame);
  // For rank 0: sends frame i to rank i + 1, to all ranks or to none. Nobody gets one where a rank is lost, or where
  // `objection`, which runs under the lock, says no.
  Status SendToAll(const std::vector<Frame>& frames, const std::function<Status()>& objection);
  // Waits until everything is sent to the ranks that are there.
  void Flush(Deadline deadline);
  bool HasUnsent() const;
  // Why nothing more comes from the rank; empty while it is there.
  std::string WhyGone(int rank) const;

  // The watcher does a channel's work whenever it wakes.
  void StartWork(uint64_t channel, std::function<void()> work);
  // Returns once the work no longer runs.
  void StopWork(uint64_t channel);
  void WakeWatcher() { ends_.Wake(); }

  LinkTraffic traffic() const;

 private:
  struct Peer {
    FrameStream stream;
    Deadline heard;                         // last
    std::chrono::milliseconds patience{0};  // that it gets beyond the others, until it is heard
    bool goodbye = false;
    std::string ended;  // why nothing more comes
  };
  struct Arrival {
    size_t index;
    ReservedVector<Frame> frames;
    std::string ended;
  };

  HomeLink(const LinkOptions& options, ReadinessSet input, ReadinessSet ends);
  // Of rank 0: connection i leads to rank i + 1; of the others: one, to rank 0.
  static Result<std::shared_ptr<HomeLink>> Make(const LinkOptions& options, std::vector<Connection> connections);

  int RankOf(size_t index) const { return rank() == 0 ? static_cast<int>(index) + 1 : 0; }
  size_t IndexOf(int rank) const { return rank == 0 ? 0 : static_cast<size_t>(rank - 1); }
  // Reads as the one reader; unlocks while it waits, at most until the deadline. REQUIRES: nobody reads.
  void ReadForAll(std::unique_lock<std::mutex>& lock, Deadline deadline);
  // Reads without the lock what comes until the deadline.
  ReservedVector<Arrival> Read(Deadline deadline);
  // Of the watcher.
  Status StartWatching();
  void Watch();
  // Time in which this process did not run is not counted as the others' silence.
  void NoteSilentRanks(std::chrono::milliseconds unwatched);
  // The rest is under the lock.
  void Take(ReservedVector<Arrival> arrivals);
  void TakeFrame(int rank, Frame frame);
  void QueueFor(size_t index, const Frame& frame);
  void QueueForAll(const Frame& frame);
  void NoteLost(int rank, const std::string& how);
  Mailbox& MailboxOf(uint64_t channel);

  const LinkOptions options_;
  const std::shared_ptr<LostRanks> lost_ranks_ = std::make_shared<LostRanks>();
  ReadinessSet input_;

  // Not our Mutex: a condition variable waits on it, and no thread holds it together with another lock.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool someone_reads_ = false;  // and owns the receiving side of the streams
  std::vector<Peer> peers_;
  uint64_t next_channel_ = 1;
  ReservedMap<uint64_t, std::shared_ptr<Mailbox>> mailboxes_;
  std::chrono::milliseconds silence_;
  LinkTraffic traffic_;

  ReadinessSet ends_;  // of connections: the watcher wakes for these, and never for the bytes of a round
  std::atomic<bool> ending_{false};
  // Held while work runs. Not our Mutex: the work takes the link's lock.
  std::mutex work_mutex_;
  std::map<uint64_t, std::function<void()>> work_;
  std::thread watcher_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_HOME_LINK_H_
