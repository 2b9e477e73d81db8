#include "src/registration/frame.h"

#include <cstring>

namespace commpool::internal {

namespace {

constexpr uint64_t kLongestContents = uint64_t{1} << 30;

struct Header {
  uint32_t kind;
  uint32_t code;
  uint64_t channel;
  uint64_t sequence;
  uint64_t bytes;
};
static_assert(sizeof(Header) == kFrameHeaderBytes);

}  // namespace

void AppendTo(std::string& bytes, const Frame& frame) {
  const Header header{static_cast<uint32_t>(frame.kind), static_cast<uint32_t>(frame.code), frame.channel,
                      frame.sequence, frame.contents.size()};
  bytes.append(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(frame.contents);
}

std::optional<Frame> TakeFrame(const std::string& bytes, size_t& begin, FrameFault& fault) {
  Header header;
  if (bytes.size() - begin < sizeof(header)) return std::nullopt;
  std::memcpy(&header, bytes.data() + begin, sizeof(header));
  if (header.kind > static_cast<uint32_t>(FrameKind::kGoodbye) || header.bytes > kLongestContents) {
    fault = FrameFault::kNoFrame;
    return std::nullopt;
  }
  if (bytes.size() - begin - sizeof(header) < header.bytes) return std::nullopt;
  Frame frame{static_cast<FrameKind>(header.kind), static_cast<StatusCode>(header.code), header.channel,
              header.sequence, bytes.substr(begin + sizeof(header), header.bytes)};
  begin += sizeof(header) + header.bytes;
  return frame;
}

}  // namespace commpool::internal
