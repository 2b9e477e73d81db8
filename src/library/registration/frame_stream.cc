#include "src/library/registration/frame_stream.h"

#include <sys/socket.h>

#include <array>
#include <cstring>

namespace commpool::internal {

namespace {

// The most bytes that one ReceiveSome reads: a peer that sends faster than we read must not keep the reader for ever.
constexpr size_t kMostAtOnce = size_t{1} << 22;

// Of what the peer announces: decisions of jobs with tens of thousands of ranks fit.
constexpr uint64_t kLongestContents = uint64_t{1} << 28;

// A frame's first bytes, as they travel.
struct Header {
  FrameKind kind;
  StatusCode code;
  uint64_t channel;
  uint64_t sequence;
  uint64_t bytes;
};
static_assert(sizeof(Header) == kFrameHeaderBytes);

}  // namespace

void FrameStream::Queue(const Frame& frame) {
  const Header header{frame.kind, frame.code, frame.channel, frame.sequence, frame.contents.size()};
  unsent_.reserve(unsent_.size() + sizeof(header) + frame.contents.size());
  unsent_.append(reinterpret_cast<const char*>(&header), sizeof(header));
  unsent_.append(frame.contents);
}

void FrameStream::SendSome() {
  Transfer rest = connection_.Sending(unsent_.data(), unsent_.size());
  const bool takes_more = rest.MoveSome().ok();
  unsent_.erase(0, takes_more ? unsent_.size() - rest.left : unsent_.size());
}

void FrameStream::EndSending() { shutdown(descriptor(), SHUT_WR); }

std::vector<Frame> FrameStream::ReceiveSome() {
  std::array<char, 1 << 14> piece;
  bool more = ended_.empty();
  for (size_t received = 0; more && received < kMostAtOnce; received += piece.size()) {
    Transfer rest = connection_.Receiving(piece.data(), piece.size());
    const Status status = rest.MoveSome();
    received_.append(piece.data(), piece.size() - rest.left);
    ended_ = status.message();
    more = rest.left == 0;
  }
  return TakeFrames();
}

std::vector<Frame> FrameStream::TakeFrames() {
  std::vector<Frame> frames;
  size_t begin = 0;
  for (Header header; received_.size() - begin >= sizeof(header); begin += sizeof(header) + header.bytes) {
    std::memcpy(&header, received_.data() + begin, sizeof(header));
    if (header.kind > FrameKind::kGoodbye || header.bytes > kLongestContents) {
      if (ended_.empty()) ended_ = connection_.peer() + " sent what is no frame";
      break;
    }
    if (received_.size() - begin - sizeof(header) < header.bytes) break;
    std::string contents = received_.substr(begin + sizeof(header), header.bytes);
    frames.push_back({header.kind, header.code, header.channel, header.sequence, std::move(contents)});
  }
  received_.erase(0, begin);
  return frames;
}

}  // namespace commpool::internal
