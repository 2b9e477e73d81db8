// Frames over a connection of a home link. Each frame is for one channel or for the link itself. No call waits: it
// sends as many bytes as the socket takes now, and receives the bytes that are there.
//
// One thread at a time sends and one receives; the two share nothing but the socket.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/socket.h"

namespace commpool::internal {

enum class FrameKind : uint32_t {
  kSaid,        // a rank's bytes in a round, to rank 0
  kDecision,    // rank 0's answer: the decision, or with another code than OK the reason why there is none
  kBackground,  // a message between rounds, either way
  kLeft,        // the sender uses the channel no more, and why
  kHeartbeat,   // the sender lives
  kLost,        // from rank 0: the rank in `sequence` is lost, and how
  kGoodbye,     // the sender ends the link in order
};

// One message over a connection.
struct Frame {
  FrameKind kind = FrameKind::kHeartbeat;
  StatusCode code = StatusCode::kOk;
  uint64_t channel = 0;
  uint64_t sequence = 0;  // of the round
  std::string contents = {};
};

constexpr uint64_t kFrameHeaderBytes = 32;

// One connection of a link. HomeLink owns one for each peer.
class FrameStream {
 public:
  explicit FrameStream(Connection connection) : connection_(std::move(connection)) {}

  int descriptor() const { return connection_.descriptor(); }

  void Queue(const Frame& frame);
  // Drops what the connection cannot take any more: ReceiveSome finds out why, and ended() tells.
  void SendSome();
  bool has_unsent() const { return !unsent_.empty(); }
  // Ends the sending side. The peer still reads all that was sent.
  void EndSending();

  // Reads what is there, and returns the frames that are complete now.
  std::vector<Frame> ReceiveSome();
  // Why nothing more comes, from whom; empty while the connection works.
  const std::string& ended() const { return ended_; }

 private:
  std::vector<Frame> TakeFrames();

  Connection connection_;
  std::string unsent_;
  std::string received_;
  std::string ended_;
};

}  // namespace commpool::internal
