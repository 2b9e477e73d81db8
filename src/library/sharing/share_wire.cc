#include "src/library/sharing/share_wire.h"

#include <algorithm>
#include <cstring>

#include "src/library/base/printable.h"

namespace commpool::internal {

namespace {

struct Header {
  static constexpr uint32_t kMagic = 0x74726873;

  uint32_t magic = kMagic;
  uint16_t version = kShareVersion;
  uint16_t kind = 0;
  uint32_t bytes = 0;  // of the whole message
  uint32_t zero = 0;
  uint64_t question = 0;
  std::array<uint64_t, 4> numbers = {};
};
static_assert(sizeof(Header) + kMostShareText == kMostShareBytes);

Status Malformed(const std::string& why) { return Status(StatusCode::kInvalidArgument, "a malformed message: " + why); }

}  // namespace

std::string EncodeShare(const ShareMessage& message) {
  const size_t text_bytes = std::min(message.text.size(), kMostShareText);
  const Header header{.kind = static_cast<uint16_t>(message.kind),
                      .bytes = static_cast<uint32_t>(sizeof(header) + text_bytes),
                      .question = message.question,
                      .numbers = message.numbers};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  return bytes.append(message.text, 0, text_bytes);
}

Result<ShareMessage> DecodeShare(std::string_view bytes) {
  Header header;
  if (bytes.size() < sizeof(header)) return Malformed("it is shorter than its header");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != Header::kMagic) return Malformed("it is none of commpool's");
  if (header.version != kShareVersion) {
    return Status(StatusCode::kNotSupported, "the other process speaks version " + std::to_string(header.version) +
                                                 " of shared pools, this one version " + std::to_string(kShareVersion) +
                                                 ": run one commpool in both");
  }
  if (header.bytes != bytes.size() || bytes.size() > kMostShareBytes) return Malformed("its length is wrong");
  if (header.kind == 0 || header.kind > static_cast<uint16_t>(ShareKind::kLast) || header.zero != 0) {
    return Malformed("its kind is unknown");
  }
  bytes.remove_prefix(sizeof(header));
  return ShareMessage{static_cast<ShareKind>(header.kind), header.numbers, std::string(bytes), header.question};
}

ShareMessage RefusalOf(const Status& status, uint64_t question) {
  return {ShareKind::kRefused, {static_cast<uint64_t>(status.code())}, status.message(), question};
}

Status StatusOf(const ShareMessage& refusal) {
  const uint64_t code = refusal.numbers[0];
  const bool known = code > 0 && code <= static_cast<uint64_t>(StatusCode::kInternal);
  return Status(known ? static_cast<StatusCode>(code) : StatusCode::kRemoteFailure,
                Printable(refusal.text, kMostShareText));
}

}  // namespace commpool::internal
