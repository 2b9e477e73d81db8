// What goes over the connections of a home link: frames, each for one channel or for the link itself.
#ifndef COMMPOOL_SRC_REGISTRATION_FRAME_H_
#define COMMPOOL_SRC_REGISTRATION_FRAME_H_

#include <cstdint>
#include <optional>
#include <string>

#include "commpool/status.h"

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

void AppendTo(std::string& bytes, const Frame& frame);

// The frame that begins at `begin`, which moves behind it; nothing where it is not complete yet, or is none.
enum class FrameFault { kNone, kNoFrame };
std::optional<Frame> TakeFrame(const std::string& bytes, size_t& begin, FrameFault& fault);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_FRAME_H_
