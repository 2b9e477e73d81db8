// A port behind which strangers wait too: whoever connects is let in once it has said its first words.
//
// Who says nothing delays nobody. At most so many are waited for; then the one that has been silent longest goes. Where
// the process has no descriptor left silent ones go as well, and the port stays open. One thread at a time.
#ifndef COMMPOOL_SRC_BASE_RECEPTION_H_
#define COMMPOOL_SRC_BASE_RECEPTION_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <string>

#include "commpool/status.h"
#include "src/base/socket.h"

namespace commpool::internal {

struct ReceptionOptions {
  size_t hello_bytes = 0;                          // of a caller's first words
  size_t most_silent = 64;                         // at least 1
  std::function<Result<std::string>()> challenge;  // what a caller hears first; none where empty
};

struct Caller {
  Connection connection;
  std::string challenge;  // what it was told
  std::string hello;      // what it said: nothing yet is known to be true
};

class Reception {
 public:
  Reception(Listener listener, ReceptionOptions options)
      : listener_(std::move(listener)), options_(std::move(options)) {}

  const std::string& address() const { return listener_.address(); }

  // The next caller that has said hello. kDeadlineExceeded where nobody has.
  Result<Caller> Next(Deadline deadline);

 private:
  // Reads what has come from those that were silent.
  void Listen();
  // Takes in who is in the queue.
  Status AcceptAll();
  Status Greet(Connection connection);
  // Drops the one that has been silent longest, where more than `room` are silent. False where they were not.
  bool DropTheSilent(size_t room);
  void Wait(Deadline deadline);

  Listener listener_;
  const ReceptionOptions options_;
  std::deque<Caller> silent_;  // the longest first
  std::deque<Caller> spoken_;
  Status out_of_room_;  // why nobody could be accepted, at last
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_RECEPTION_H_
