// The thread of an import: hears the owner, lets blocks go once this process's work is done, and sleeps and wakes with
// the owner's pool.
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "src/library/base/log.h"
#include "src/library/base/try.h"
#include "src/library/driver/graph_handles.h"
#include "src/library/sharing/pool_import.h"
#include "src/library/sharing/share_folder.h"

namespace commpool::internal {

namespace {

constexpr int kPauseMilliseconds = 1;  // between looks at work that blocks wait for
constexpr int kTriesToRemove = 1000;
constexpr uint64_t kLongestWaitMs = INT32_MAX;
// An owner answers sooner than a thread that rests would notice.
constexpr std::chrono::microseconds kTimeToLook(200);

// A refusal without a question is about the connection itself.
bool IsRefusalOfAll(const ShareMessage& message) {
  return message.kind == ShareKind::kRefused && message.question == 0;
}

}  // namespace

void PoolImport::Wake() { static_cast<void>(eventfd_write(wake_.get(), 1)); }

void PoolImport::Serve() {
  const RelaxedCapture relaxed(driver_);
  const ContextGuard current(driver_, context_);
  {
    MutexLock lock(mutex_);
    while (!welcome_ && !closing_) changed_.Wait(mutex_);
  }
  if (closing_) return;
  Wake();  // something may have come before this thread
  while (!closing_) {
    short events = POLLIN;
    int pause = -1;
    {
      MutexLock lock(mutex_);
      if (channel_.has_queued()) events |= POLLOUT;
      if (!leaving_.empty()) pause = kPauseMilliseconds;
    }
    pollfd waits[] = {{wake_.get(), POLLIN, 0}, {channel_.descriptor(), events, 0}};
    poll(waits, 2, pause);
    eventfd_t wakes = 0;
    static_cast<void>(eventfd_read(wake_.get(), &wakes));
    SendLeaving();
    const Status heard = Hear();
    if (heard.ok()) continue;
    if (heard.code() != StatusCode::kRemoteFailure) Log(LogLevel::kWarning, title_ + ": " + heard.message());
    return NoteEnd();
  }
}

void PoolImport::NoteEnd() {
  {
    MutexLock lock(mutex_);
    dropped_ = board_.valid() && board_.page().dropped != 0;
    ended_ = true;  // last: who reads it needs no lock
    changed_.NotifyAll();
  }
  // A process that is killed closes its descriptors one after the other: the socket that listens may be the last.
  for (int tries = 0; tries < kTriesToRemove && !closing_ && !dropped_ && !RemoveIfDead(ticket_.socket); ++tries) {
    poll(nullptr, 0, kPauseMilliseconds);
  }
}

Status PoolImport::Hear() {
  COMMPOOL_TRY(SendQueued());
  while (true) {
    for (; !for_later_.empty(); for_later_.pop_front()) Take(std::move(for_later_.front()));
    std::optional<Received> received = COMMPOOL_TRY(channel_.Receive());
    if (!received) return Status();
    Take(std::move(*received));
  }
}

Status PoolImport::SendQueued() {
  MutexLock lock(mutex_);
  return channel_.SendQueued();
}

Result<uint64_t> PoolImport::Send(ShareMessage question) {
  MutexLock lock(mutex_);
  question.question = next_question_++;
  COMMPOOL_TRY(channel_.Send(question));
  return question.question;
}

Result<Received> PoolImport::AwaitNow(uint64_t question, Deadline deadline) {
  const Deadline rest = std::chrono::steady_clock::now() + kTimeToLook;
  WaitSlices slices(deadline);
  while (!closing_ && !slices.Over()) {
    Result<std::optional<Received>> next = channel_.Receive();
    if (next.status().code() == StatusCode::kRemoteFailure) return OwnerEnded();
    std::optional<Received> received = COMMPOOL_TRY(std::move(next));
    if (!received && !IsPast(rest)) {
      std::this_thread::yield();
    } else if (!received) {
      COMMPOOL_TRY(SendQueued());  // the question may be behind others
      pollfd wait{channel_.descriptor(), POLLIN, 0};
      poll(&wait, 1, kPauseMilliseconds);
    } else if (IsRefusalOfAll(received->message)) {
      return StatusOf(received->message);
    } else if (received->message.question != question) {
      for_later_.push_back(std::move(*received));
    } else {
      COMMPOOL_TRY(CheckAnswer(*received));
      return std::move(*received);
    }
  }
  return NoAnswer();
}

void PoolImport::Take(Received received) {
  switch (received.message.kind) {
    case ShareKind::kSleep:
      return FallAsleep(received.message.numbers[0], received.message.question);
    case ShareKind::kAwake:
      return WakeUp();
    case ShareKind::kWritesGoOn:
      // A failure shows at the first update.
      return static_cast<void>(updates_.Open(driver_));
    default: {
      MutexLock lock(mutex_);
      const bool of_all = IsRefusalOfAll(received.message);
      if (received.message.question != asked_ && !of_all) return;
      if (of_all && std::exchange(asleep_, false)) awake_failure_ = StatusOf(received.message);
      answer_ = std::move(received);
      changed_.NotifyAll();
    }
  }
}

void PoolImport::SendLeaving() {
  std::vector<uint64_t> records;
  {
    MutexLock lock(mutex_);
    for (const auto& leaving : leaving_) records.push_back(leaving.mapped().record);
  }
  if (records.empty()) return;
  std::sort(records.begin(), records.end());
  uint64_t passed = 0;
  {
    MutexLock mapping(mapping_);
    for (const uint64_t record : records) {
      const Result<bool> done = reads_.Passed(record);
      if (done.ok() && !*done) break;
      passed = record;  // where the device is lost nothing of this process runs there any more
    }
  }
  MutexLock lock(mutex_);
  std::erase_if(leaving_, [&](const auto& leaving) {
    if (leaving.mapped().record > passed) return false;
    static_cast<void>(channel_.Send({ShareKind::kLetGo, {leaving.mapped().number}}));
    return true;
  });
}

// The owner's deadline is a number that came over a socket.
void PoolImport::FallAsleep(uint64_t deadline_ms, uint64_t sleep) {
  Status status;
  const Deadline end = DeadlineAfter(std::chrono::milliseconds(std::min(deadline_ms, kLongestWaitMs)));
  {
    MutexLock lock(mutex_);
    asleep_ = true;
    ++sleeps_;
    const auto waits = [this]() COMMPOOL_REQUIRES(mutex_) {
      return !closing_ &&
             std::any_of(held_.begin(), held_.end(), [](const auto& entry) { return entry.second.reading != 0; });
    };
    while (waits() && changed_.WaitUntil(mutex_, end)) {
    }
    if (waits()) {
      status = DeadlineExceeded("it reads a block still");
      asleep_ = false;
    }
  }
  if (status.ok()) status = LetMemoryGo(end);
  MutexLock lock(mutex_);
  changed_.NotifyAll();
  static_cast<void>(
      channel_.Send({ShareKind::kAsleep, {static_cast<uint64_t>(status.code())}, status.message(), sleep}));
}

Status PoolImport::LetMemoryGo(Deadline end) {
  MutexLock mapping(mapping_);
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  COMMPOOL_TRY(options_.quiesce(context_.device(), static_cast<uint64_t>(std::max<int64_t>(left.count(), 0))));
  return segments_.UnmapAll();
}

void PoolImport::WakeUp() {
  std::vector<SegmentName> names;
  {
    MutexLock mapping(mapping_);
    names = segments_.Unmapped();
  }
  Status failure;
  for (const SegmentName& name : names) {
    const Result<uint64_t> question = Send({ShareKind::kAskSegment, {name.address}});
    const Result<Received> answer = question.ok() ? AwaitNow(*question, deadline()) : question.status();
    // The owner falls asleep again. Another kAwake follows, also where it does not succeed.
    if (answer.status().code() == StatusCode::kFailedPrecondition) return;
    MutexLock mapping(mapping_);
    const bool gone =
        answer.status().code() == StatusCode::kNotFound || (answer.ok() && answer->message.numbers[2] != name.number);
    if (gone) {
      segments_.Forget(name.number);
      continue;
    }
    const Status mapped = answer.ok() ? Map(*answer) : answer.status();
    if (failure.ok()) failure = mapped.under("mapping " + title_ + " again");
  }
  MutexLock lock(mutex_);
  asleep_ = false;
  awake_failure_ = failure;
  changed_.NotifyAll();
}

}  // namespace commpool::internal
