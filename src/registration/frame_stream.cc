#include "src/registration/frame_stream.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "src/base/host_patience.h"

namespace commpool::internal {

namespace {

// At one look: whoever sends more than is read must not keep the reader.
constexpr size_t kMostAtOnce = size_t{1} << 22;

// Whether a transfer that moved nothing may go on later.
bool MayGoOn(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

void FrameStream::Queue(const Frame& frame) {
  Insist([&] { unsent_.reserve(unsent_.size() + kFrameHeaderBytes + frame.contents.size()); });
  AppendTo(unsent_, frame);
}

void FrameStream::SendSome() {
  size_t sent = 0;
  while (sent < unsent_.size()) {
    const ssize_t count = send(descriptor(), unsent_.data() + sent, unsent_.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && MayGoOn(errno)) break;
    sent = count < 0 ? unsent_.size() : sent + static_cast<size_t>(count);
  }
  unsent_.erase(0, sent);
}

void FrameStream::EndSending() { shutdown(descriptor(), SHUT_WR); }

ReservedVector<Frame> FrameStream::ReceiveSome() {
  std::array<char, 1 << 14> piece;
  size_t received = 0;
  while (ended_.empty() && received < kMostAtOnce) {
    const ssize_t count = recv(descriptor(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (count < 0 && MayGoOn(errno)) break;
    if (count <= 0) {
      const char* const why = count == 0 ? "the peer closed" : strerror(errno);
      Insist([&] { ended_ = why; });
      break;
    }
    Insist([&] { received_.append(piece.data(), static_cast<size_t>(count)); });
    received += static_cast<size_t>(count);
  }
  return TakeFrames();
}

ReservedVector<Frame> FrameStream::TakeFrames() {
  ReservedVector<Frame> frames;
  size_t begin = 0;
  FrameFault fault = FrameFault::kNone;
  const auto take = [&] { return Insist([&] { return TakeFrame(received_, begin, fault); }); };
  while (std::optional<Frame> frame = take()) frames.push_back(std::move(*frame));
  received_.erase(0, begin);
  if (fault != FrameFault::kNone && ended_.empty()) {
    Insist([&] { ended_ = "it sent what is no frame"; });
  }
  return frames;
}

}  // namespace commpool::internal
