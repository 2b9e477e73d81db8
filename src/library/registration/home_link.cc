#include "src/library/registration/home_link.h"

#include <algorithm>

#include "src/library/base/interruption.h"
#include "src/library/base/start_thread.h"
#include "src/library/base/try.h"

namespace commpool::internal {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// No rank counts as lost after a shorter silence: its machine may only be busy.
constexpr milliseconds kShortestSilence{1000};
// Rank 0 is silent while it waits for ranks that never connect, and names them only when the deadline has passed. So
// the others wait this much longer for its first bytes.
constexpr milliseconds kUntilTheFirstWord{1000};
// How long the end of a link waits for peers to take what was sent.
constexpr milliseconds kLongestFlush{1000};

// Sends the ranks that came an answer, which they read as the decision of their first round.
void TellThatSomeAreMissing(std::vector<Connection> connections, const Status& why) {
  for (Connection& connection : connections) {
    if (!connection.valid()) continue;
    FrameStream stream(std::move(connection));
    stream.Queue({FrameKind::kDecision, why.code(), kFirstChannel, 1, why.message()});
    stream.SendSome();
  }
}

constexpr milliseconds kTick{50};
constexpr milliseconds kBeat{250};  // a quarter of the shortest silence that counts

}  // namespace

Result<std::shared_ptr<HomeLink>> HomeLink::Accept(const LinkOptions& options, Listener listener) {
  AdmittedRanks ranks = AdmitRanks(options, std::move(listener));
  if (ranks.status.ok()) return Make(options, std::move(ranks.connections));
  TellThatSomeAreMissing(std::move(ranks.connections), ranks.status);
  return ranks.status;
}

Result<std::shared_ptr<HomeLink>> HomeLink::Join(const LinkOptions& options, const std::string& address) {
  std::vector<Connection> one(1);
  one[0] = COMMPOOL_TRY(JoinRankZero(options, address));
  return Make(options, std::move(one));
}

Result<std::shared_ptr<HomeLink>> HomeLink::Make(const LinkOptions& options, std::vector<Connection> connections) {
  ReadinessSet input = COMMPOOL_TRY(ReadinessSet::Make());
  ReadinessSet ends = COMMPOOL_TRY(ReadinessSet::Make());
  std::shared_ptr<HomeLink> link(new HomeLink(options, std::move(input), std::move(ends)));
  for (Connection& connection : connections) COMMPOOL_TRY(link->AddPeer(std::move(connection)));
  link->watcher_ = COMMPOOL_TRY(StartThread("the watcher of the ranks", [watched = link.get()] { watched->Watch(); }));
  return link;
}

Status HomeLink::AddPeer(Connection connection) {
  const size_t index = streams_.size();
  const int descriptor = streams_.emplace_back(std::move(connection)).descriptor();
  {
    MutexLock lock(mutex_);
    peers_.push_back({.heard = Clock::now(), .patience = rank() == 0 ? milliseconds(0) : kUntilTheFirstWord});
  }
  COMMPOOL_TRY(input_.Add(descriptor, Interest::kInput, index));
  return ends_.Add(descriptor, Interest::kEnd, index);
}

HomeLink::HomeLink(const LinkOptions& options, ReadinessSet input, ReadinessSet ends)
    : options_(options),
      input_(std::move(input)),
      silence_(std::max(options.deadline, kShortestSilence)),
      ends_(std::move(ends)) {}

HomeLink::~HomeLink() {
  StopWatching();
  Send({.kind = FrameKind::kGoodbye});
  Flush(DeadlineAfter(kLongestFlush));
  for (FrameStream& stream : streams_) {
    stream.EndSending();
    // If a socket closes with unread bytes, the system also drops what it has sent: so read first.
    static_cast<void>(stream.ReceiveSome());
  }
}

// A hash of the key: it tells links apart, and gives nothing of the key away.
uint64_t HomeLink::id() const {
  constexpr char kPurpose[] = "link";
  return KeyedHash(options_.key, kPurpose, sizeof(kPurpose)) | 1;
}

void HomeLink::Break() {
  StopWatching();
  MutexLock lock(mutex_);
  for (size_t index = 0; index < peers_.size(); ++index) {
    if (peers_[index].ended.empty()) input_.Remove(streams_[index].descriptor());
    peers_[index].ended = "this rank broke the link";
    streams_[index].EndSending();
  }
  input_.Wake();
}

uint64_t HomeLink::next_channel() const {
  MutexLock lock(mutex_);
  return next_channel_;
}

std::shared_ptr<Mailbox> HomeLink::OpenChannel(uint64_t number, std::chrono::milliseconds deadline) {
  MutexLock lock(mutex_);
  next_channel_ = std::max(next_channel_, number + 1);
  silence_ = std::min(silence_, std::max(deadline, kShortestSilence));
  return MailboxOf(number);  // messages may have come before the channel opened: they are in it
}

const std::shared_ptr<Mailbox>& HomeLink::MailboxOf(uint64_t channel) {
  std::shared_ptr<Mailbox>& mailbox = mailboxes_[channel];
  if (mailbox == nullptr) mailbox = std::make_shared<Mailbox>(ranks());
  return mailbox;
}

void HomeLink::EndChannel(uint64_t number, const std::string& why) {
  MutexLock lock(mutex_);
  mailboxes_.erase(number);
  QueueForAll(Frame{.kind = FrameKind::kLeft, .channel = number, .contents = why});
}

bool HomeLink::Await(Deadline deadline, FunctionRef<bool()> done) {
  WaitSlices slices(deadline);
  do {
    MutexLock lock(mutex_);
    for (;;) {
      if (done()) return true;
      if (Clock::now() >= slices.end()) break;
      AwaitNews(slices.end());
    }
  } while (!slices.Over());
  return false;
}

void HomeLink::AwaitNews(Deadline deadline) {
  if (!someone_reads_) return ReadForAll(deadline);
  static_cast<void>(changed_.WaitUntil(mutex_, deadline));
}

void HomeLink::ReadNow() {
  MutexLock lock(mutex_);
  if (!someone_reads_) ReadForAll(Clock::now());
}

void HomeLink::ReadForAll(Deadline deadline) {
  someone_reads_ = true;
  mutex_.Unlock();
  std::vector<std::pair<size_t, std::vector<Frame>>> arrivals;
  for (const size_t index : input_.Wait(deadline)) arrivals.emplace_back(index, streams_[index].ReceiveSome());
  mutex_.Lock();
  for (auto& [index, frames] : arrivals) Take(index, std::move(frames));
  someone_reads_ = false;
  changed_.NotifyAll();  // for others something came, or the reader was woken, or one of them reads next
}

void HomeLink::WithLock(FunctionRef<void()> part) {
  MutexLock lock(mutex_);
  part();
}

void HomeLink::Take(size_t index, std::vector<Frame> frames) {
  Peer& peer = peers_[index];
  const FrameStream& stream = streams_[index];
  if (!frames.empty()) {
    peer.heard = Clock::now();
    peer.patience = {};
  }
  for (Frame& frame : frames) TakeFrame(RankOf(index), std::move(frame));
  if (stream.has_unsent()) QueueFor(index, {});
  if (stream.ended().empty() || !peer.ended.empty()) return;
  peer.ended = stream.ended();
  input_.Remove(stream.descriptor());
  if (!peer.goodbye) NoteLost(RankOf(index), "its connection ended (" + peer.ended + ")");
}

void HomeLink::TakeFrame(int from, Frame frame) {
  ++traffic_.messages;
  traffic_.bytes += frame.contents.size() + kFrameHeaderBytes;
  if (frame.kind == FrameKind::kHeartbeat) return;
  if (frame.kind == FrameKind::kGoodbye) {
    peers_[IndexOf(from)].goodbye = true;
    return;
  }
  if (frame.kind == FrameKind::kLost) {
    lost_ranks_->Note(static_cast<int>(frame.sequence), frame.contents);
    WakeWatcher();
    return;
  }
  const auto found = mailboxes_.find(frame.channel);
  if (found == mailboxes_.end() && frame.channel < next_channel_) return;  // the channel has ended on this rank
  Mailbox& mailbox = *MailboxOf(frame.channel);
  if (frame.kind == FrameKind::kLeft) {
    mailbox.left.emplace(from, std::move(frame.contents));
  } else if (frame.kind == FrameKind::kBackground) {
    mailbox.background.push_back({from, std::move(frame.contents)});
  } else {
    mailbox.PutRound(from, std::move(frame));
  }
}

void HomeLink::NoteLost(int lost, const std::string& how) {
  lost_ranks_->Note(lost, how);
  if (rank() == 0) {
    QueueForAll({.kind = FrameKind::kLost, .sequence = static_cast<uint64_t>(lost), .contents = how});
  }
  WakeWatcher();
  input_.Wake();
}

// Queues a frame and sends what the socket takes. A heartbeat is left out while other bytes still wait: they are a sign
// of life too.
void HomeLink::QueueFor(size_t index, const Frame& frame) {
  if (!peers_[index].ended.empty()) return;
  FrameStream& stream = streams_[index];
  const bool waited = stream.has_unsent();
  if (!waited || frame.kind != FrameKind::kHeartbeat) {
    stream.Queue(frame);
    ++traffic_.messages;
    traffic_.bytes += frame.contents.size() + kFrameHeaderBytes;
  }
  stream.SendSome();
  const bool waits = stream.has_unsent();
  if (waits == waited) return;
  input_.Change(stream.descriptor(), waits ? Interest::kInputAndOutput : Interest::kInput, index);
}

void HomeLink::QueueForAll(const Frame& frame) {
  for (size_t index = 0; index < peers_.size(); ++index) QueueFor(index, frame);
}

void HomeLink::Send(const Frame& frame) {
  MutexLock lock(mutex_);
  QueueForAll(frame);
}

Status HomeLink::SendUnless(FunctionRef<Status()> objection, const Frame& frame) {
  MutexLock lock(mutex_);
  Status status = objection();
  if (status.ok()) QueueForAll(frame);
  return status;
}

bool HomeLink::HasUnsent() const {
  MutexLock lock(mutex_);
  return OwesBytes();
}

bool HomeLink::OwesBytes() const {
  for (size_t index = 0; index < peers_.size(); ++index) {
    if (peers_[index].ended.empty() && streams_[index].has_unsent()) return true;
  }
  return false;
}

void HomeLink::Flush(Deadline deadline) {
  MutexLock lock(mutex_);
  while (OwesBytes() && Clock::now() < deadline) AwaitNews(deadline);
}

std::string HomeLink::WhyGone(int of) const {
  MutexLock lock(mutex_);
  const Peer& peer = peers_[IndexOf(of)];
  return peer.goodbye ? "it has ended its pools" : peer.ended;
}

LinkTraffic HomeLink::traffic() const {
  MutexLock lock(mutex_);
  return traffic_;
}

void HomeLink::StopWatching() {
  ending_.store(true, std::memory_order_release);
  WakeWatcher();
  if (watcher_.joinable()) watcher_.join();
}

void HomeLink::StartWork(uint64_t channel, std::function<void()> work) {
  MutexLock lock(work_mutex_);
  work_[channel] = std::move(work);
}

void HomeLink::StopWork(uint64_t channel) {
  MutexLock lock(work_mutex_);
  work_.erase(channel);
}

// The watcher. It wakes when a peer's connection ends, when it is woken, and every 50 ms; never for the bytes of a
// round.
void HomeLink::Watch() {
  Deadline looked = Clock::now();
  Deadline beat = looked - kBeat;
  while (!ending_.load(std::memory_order_acquire)) {
    static_cast<void>(ends_.Wait(Clock::now() + kTick));
    ReadNow();
    const Deadline now = Clock::now();
    // A process that was stopped finds its peers silent, though it was itself the silent one.
    const auto unwatched = std::chrono::duration_cast<milliseconds>(now - looked);
    NoteSilentRanks(unwatched > 4 * kTick ? unwatched : milliseconds(0));
    looked = now;
    if (now - beat >= kBeat) {
      Send({.kind = FrameKind::kHeartbeat});
      beat = now;
    }
    {
      MutexLock lock(work_mutex_);
      for (const auto& [channel, work] : work_) work();
    }
    lost_ranks_->CallListeners();
  }
}

void HomeLink::NoteSilentRanks(std::chrono::milliseconds unwatched) {
  MutexLock lock(mutex_);
  const Deadline now = Clock::now();
  for (size_t index = 0; index < peers_.size(); ++index) {
    Peer& peer = peers_[index];
    peer.heard += unwatched;
    const auto silent = std::chrono::duration_cast<std::chrono::milliseconds>(now - peer.heard);
    if (!peer.ended.empty() || peer.goodbye || silent < silence_ + peer.patience) continue;
    std::string how = "it was silent for " + std::to_string(silent.count()) + " ms";
    NoteLost(RankOf(index), how);
    peer.ended = std::move(how);
    input_.Remove(streams_[index].descriptor());
  }
}

}  // namespace commpool::internal
