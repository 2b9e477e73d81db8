// Connections of one process to itself.
#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <utility>

#include "src/library/base/socket.h"

namespace commpool::internal {

inline Deadline Soon() { return DeadlineAfter(std::chrono::milliseconds(20)); }
inline Deadline Later() { return DeadlineAfter(std::chrono::seconds(60)); }

// Waits for the next caller.
inline Connection NextCaller(Listener& listener) {
  pollfd wait{listener.descriptor(), POLLIN, 0};
  poll(&wait, 1, PollWait(Later()));
  std::optional<Connection> caller = listener.AcceptNow().value();
  return std::move(caller.value());
}

struct Pair {
  Connection client;
  Connection server;
};

inline Pair MakePair() {
  Listener listener = Listener::Open().value();
  Pair pair;
  pair.client = Connect(listener.address(), Later()).value();
  pair.server = NextCaller(listener);
  return pair;
}

}  // namespace commpool::internal
