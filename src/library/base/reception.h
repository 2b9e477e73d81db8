// Accepts connections on a port that strangers can reach too. Next() returns a caller once it has sent its first words.
//
// A silent caller delays nobody. At most `most_silent` may wait; when one more comes, the one that is silent longest is
// dropped. Where the process runs out of descriptors, silent callers are dropped too, and the port stays open. One
// thread at a time.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>

#include "commpool/status.h"
#include "src/library/base/socket.h"

namespace commpool::internal {

struct ReceptionOptions {
  size_t hello_bytes = 0;                          // length of a caller's first words
  size_t most_silent = 64;                         // at least 1
  std::function<Result<std::string>()> challenge;  // what we tell a caller first; may be empty
};

struct Caller {
  Connection connection;
  std::string challenge;  // what we told the caller
  std::string hello;      // what the caller said: not to be trusted yet
};

class Reception {
 public:
  Reception(Listener listener, ReceptionOptions options)
      : listener_(std::move(listener)), options_(std::move(options)) {}

  const std::string& address() const { return listener_.address(); }

  // The next caller that has said hello. kDeadlineExceeded where there is none.
  Result<Caller> Next(Deadline deadline);

 private:
  // Reads what silent callers have sent.
  void Listen();
  // Accepts all callers in the queue.
  Status AcceptAll();
  Status Greet(Connection connection);
  // Drops the caller that has been silent longest, where more than `room` are silent. Returns whether it did.
  bool DropTheSilent(size_t room);
  void Wait(Deadline deadline);

  Listener listener_;
  const ReceptionOptions options_;
  std::deque<Caller> silent_;  // the one silent longest first
  std::deque<Caller> spoken_;
  Status out_of_room_;  // the last reason why nobody could be accepted
};

}  // namespace commpool::internal
