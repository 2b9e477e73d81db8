// Messages over a connection, sent and received a piece at a time, as far as the socket takes or has them: never waits.
// One thread.
#ifndef COMMPOOL_SRC_REGISTRATION_MESSAGE_STREAM_H_
#define COMMPOOL_SRC_REGISTRATION_MESSAGE_STREAM_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/socket.h"

namespace commpool::internal {

class MessageStream {
 public:
  explicit MessageStream(Connection connection) : connection_(std::move(connection)) {}

  // False once the peer has gone or has sent what is no message; then nothing more comes or goes.
  bool open() const { return open_; }
  int descriptor() const { return connection_.descriptor(); }
  bool has_unsent() const { return open_ && !unsent_.empty(); }

  void Queue(std::string_view message);
  void SendSome();
  // The messages that are complete now.
  std::vector<std::string> ReceiveSome();

 private:
  std::vector<std::string> TakeMessages();

  Connection connection_;
  bool open_ = true;
  std::string unsent_;
  std::string received_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_MESSAGE_STREAM_H_
