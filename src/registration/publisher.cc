#include "src/registration/publisher.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <optional>
#include <system_error>
#include <utility>

#include "src/registration/wire.h"

namespace commpool::internal {

namespace {

std::string Encode(const std::vector<engine::SequenceEntry>& calls) {
  WireWriter writer;
  writer.Number(calls.size());
  for (const engine::SequenceEntry& call : calls) {
    for (const uint64_t number : {call.number, static_cast<uint64_t>(call.call), call.value, call.hash_after}) {
      writer.Number(number);
    }
  }
  return writer.Take();
}

std::vector<engine::SequenceEntry> Decode(const std::string& message) {
  WireReader reader(message);
  std::vector<engine::SequenceEntry> calls;
  const uint64_t count = reader.Number();
  for (uint64_t index = 0; index < count; ++index) {
    engine::SequenceEntry call;
    call.number = reader.Number();
    call.call = static_cast<engine::SequenceCall>(reader.Number());
    call.value = reader.Number();
    call.hash_after = reader.Number();
    if (!reader.ok()) break;
    calls.push_back(call);
  }
  return calls;
}

// Signals are for the program's threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

std::unique_ptr<Publisher> Publisher::Start(int rank, std::vector<Connection> connections, Divergence& divergence) {
  FileDescriptor wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (connections.empty() || !wake.valid()) return nullptr;
  std::unique_ptr<Publisher> publisher(new Publisher(rank, std::move(connections), std::move(wake), divergence));
  const SignalsBlocked in_the_thread;
  try {
    publisher->thread_ = std::thread([&publishes = *publisher] { publishes.Run(); });
  } catch (const std::system_error&) {
    return nullptr;
  }
  return publisher;
}

Publisher::Publisher(int rank, std::vector<Connection> connections, FileDescriptor wake, Divergence& divergence)
    : rank_(rank),
      wake_(std::move(wake)),
      divergence_(divergence),
      comparison_(static_cast<int>(connections.size()) + 1) {
  for (Connection& connection : connections) peers_.emplace_back(std::move(connection));
}

Publisher::~Publisher() {
  ending_.store(true, std::memory_order_release);
  Wake();
  if (thread_.joinable()) thread_.join();
}

void Publisher::Offer(const engine::SequenceLog& log) {
  if (log.count() - offered_count_ < kEvery) return;
  for (; offered_count_ < log.count(); ++offered_count_) {
    // A call that finds no room leaves a gap; the hashes of later calls stand for it.
    if (const std::optional<engine::SequenceEntry> call = log.Entry(offered_count_)) offered_.Push(*call);
  }
  Wake();
}

void Publisher::Wake() {
  // Writing fails only where the counter is full: then the thread has not looked yet, and will.
  static_cast<void>(eventfd_write(wake_.get(), 1));
}

void Publisher::Await() {
  std::vector<pollfd> waits = {{wake_.get(), POLLIN, 0}};
  for (const MessageStream& peer : peers_) {
    if (!peer.open()) continue;
    waits.push_back({peer.descriptor(), static_cast<short>(peer.has_unsent() ? POLLIN | POLLOUT : POLLIN), 0});
  }
  poll(waits.data(), waits.size(), -1);
  eventfd_t wakes = 0;
  static_cast<void>(eventfd_read(wake_.get(), &wakes));
}

void Publisher::Run() {
  while (!ending_.load(std::memory_order_acquire)) {
    PublishOffered();
    Hear();
    for (MessageStream& peer : peers_) peer.SendSome();
    Await();
  }
}

void Publisher::PublishOffered() {
  if (rank_ == 0) return Compare(0, offered_.TakeAll());
  // While rank 0 does not take what was sent before, calls stay in the ring: its size is the bound.
  if (peers_[0].has_unsent()) return;
  const std::vector<engine::SequenceEntry> calls = offered_.TakeAll();
  if (!calls.empty()) peers_[0].Queue(Encode(calls));
}

void Publisher::Hear() {
  for (size_t index = 0; index < peers_.size(); ++index) {
    if (!peers_[index].open()) continue;
    for (const std::string& message : peers_[index].ReceiveSome()) {
      if (rank_ == 0) {
        Compare(index + 1, Decode(message));
      } else {
        divergence_.Note(SequencesDiffer(message));
      }
    }
    if (rank_ == 0 && !peers_[index].open()) comparison_.Forget(index + 1);
  }
}

void Publisher::Compare(size_t rank, const std::vector<engine::SequenceEntry>& calls) {
  if (calls.empty() || divergence_.known()) return;
  const std::optional<std::string> difference = comparison_.Add(rank, calls);
  if (!difference) return;
  divergence_.Note(SequencesDiffer(*difference));
  for (MessageStream& peer : peers_) {
    if (peer.open()) peer.Queue(*difference);
  }
}

}  // namespace commpool::internal
