// Frames over a connection, sent and received a piece at a time, as far as the socket takes or has them: never waits.
//
// One thread at a time sends and one receives; the two share nothing but the socket.
#ifndef COMMPOOL_SRC_REGISTRATION_FRAME_STREAM_H_
#define COMMPOOL_SRC_REGISTRATION_FRAME_STREAM_H_

#include <string>
#include <utility>
#include <vector>

#include "src/base/host_reserve.h"
#include "src/base/socket.h"
#include "src/registration/frame.h"

namespace commpool::internal {

class FrameStream {
 public:
  FrameStream() = default;
  explicit FrameStream(Connection connection) : connection_(std::move(connection)) {}

  bool valid() const { return connection_.valid(); }
  int descriptor() const { return connection_.descriptor(); }
  const std::string& peer() const { return connection_.peer(); }

  void Queue(const Frame& frame);
  // What cannot be sent any more is dropped: the receiving side finds out why.
  void SendSome();
  bool has_unsent() const { return !unsent_.empty(); }
  // No more is sent; the peer reads what was.
  void EndSending();

  // The frames that are complete now.
  ReservedVector<Frame> ReceiveSome();
  // Why nothing more comes; empty while the connection works.
  const std::string& ended() const { return ended_; }

 private:
  ReservedVector<Frame> TakeFrames();

  Connection connection_;
  std::string unsent_;
  std::string received_;
  std::string ended_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_FRAME_STREAM_H_
