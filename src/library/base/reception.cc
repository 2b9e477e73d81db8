#include "src/library/base/reception.h"

#include <poll.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "src/library/base/interruption.h"
#include "src/library/base/try.h"

namespace commpool::internal {

namespace {

// How long we do not look at the port when the process has no descriptor for the next caller.
constexpr std::chrono::milliseconds kRest{10};

// Reads more of a caller's hello, as much as has come. An error where no more can come.
Status ReadOn(Caller& caller, size_t hello_bytes) {
  const size_t before = caller.hello.size();
  caller.hello.resize(hello_bytes);
  Transfer rest = caller.connection.Receiving(caller.hello.data() + before, hello_bytes - before);
  Status moved = rest.MoveSome();
  caller.hello.resize(hello_bytes - rest.left);
  return moved;
}

}  // namespace

Result<Caller> Reception::Next(Deadline deadline) {
  WaitSlices slices(deadline);
  while (true) {
    Listen();
    if (!spoken_.empty()) {
      Caller caller = std::move(spoken_.front());
      spoken_.pop_front();
      return caller;
    }
    if (slices.Over()) {
      const std::string why = out_of_room_.ok() ? std::string() : "; " + out_of_room_.message();
      return DeadlineExceeded("nobody new said hello at ", address(), " before the deadline", why);
    }
    Wait(slices.end());
    COMMPOOL_TRY(AcceptAll());
  }
}

void Reception::Listen() {
  std::deque<Caller> still_silent;
  for (Caller& caller : silent_) {
    if (!ReadOn(caller, options_.hello_bytes).ok()) continue;
    (caller.hello.size() == options_.hello_bytes ? spoken_ : still_silent).push_back(std::move(caller));
  }
  silent_ = std::move(still_silent);
}

Status Reception::AcceptAll() {
  // Listens to those that wait, between one batch and the next.
  for (size_t count = 0; count < options_.most_silent; ++count) {
    Result<std::optional<Connection>> accepted = listener_.AcceptNow();
    if (!accepted.ok()) {
      if (accepted.status().code() != StatusCode::kOutOfMemory) return accepted.status();
      out_of_room_ = accepted.status();
      if (!DropTheSilent(0)) return Status();
      continue;
    }
    out_of_room_ = Status();
    if (!*accepted) return Status();
    DropTheSilent(options_.most_silent - 1);
    COMMPOOL_TRY(Greet(std::move(**accepted)));
  }
  return Status();
}

Status Reception::Greet(Connection connection) {
  Caller caller{std::move(connection), {}, {}};
  if (options_.challenge) caller.challenge = COMMPOOL_TRY(options_.challenge());
  // A new connection has room for the challenge, or its peer has gone.
  const Status told = caller.connection.Send(caller.challenge.data(), caller.challenge.size(), DeadlineAfter({}));
  if (told.ok()) silent_.push_back(std::move(caller));
  return Status();
}

bool Reception::DropTheSilent(size_t room) {
  if (silent_.size() <= room) return false;
  Listen();
  if (silent_.size() > room) silent_.pop_front();
  return true;
}

void Reception::Wait(Deadline deadline) {
  std::vector<pollfd> waits;
  for (const Caller& caller : silent_) waits.push_back({caller.connection.descriptor(), POLLIN, 0});
  // A port with callers that we cannot accept is always ready, so polling it would spin.
  if (out_of_room_.ok()) waits.push_back({listener_.descriptor(), POLLIN, 0});
  if (!out_of_room_.ok()) deadline = std::min(deadline, DeadlineAfter(kRest));
  poll(waits.data(), waits.size(), PollWait(deadline));
}

}  // namespace commpool::internal
