// Frames over a connection of a home link, each for one channel or for the link itself. They are sent and received a
// piece at a time, as far as the socket takes or has them: never waits.
//
// One thread at a time sends and one receives; the two share nothing but the socket.
#ifndef COMMPOOL_SRC_REGISTRATION_FRAME_STREAM_H_
#define COMMPOOL_SRC_REGISTRATION_FRAME_STREAM_H_

#include <cstdint>
#include <string>
#include <utility>

#include "commpool/status.h"
#include "src/base/host_reserve.h"
#include "src/base/socket.h"

namespace commpool::internal {

enum class FrameKind : uint32_t {
  kSaid,        // a rank's bytes in a round, to rank 0
  kDecision,    // rank 0's answer: what was decided or, under another code than OK, why nothing was
  kBackground,  // between rounds, either way
  kLeft,        // the sender uses the channel no more, and why
  kHeartbeat,   // the sender lives
  kLost,        // from rank 0: the rank in `sequence` is lost, and how
  kGoodbye,     // the sender ends the link in order
};

struct Frame {
  FrameKind kind = FrameKind::kHeartbeat;
  StatusCode code = StatusCode::kOk;
  uint64_t channel = 0;
  uint64_t sequence = 0;  // of the round
  std::string contents = {};
};

constexpr uint64_t kFrameHeaderBytes = 32;

class FrameStream {
 public:
  FrameStream() = default;
  explicit FrameStream(Connection connection) : connection_(std::move(connection)) {}

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
