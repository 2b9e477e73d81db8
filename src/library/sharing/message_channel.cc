#include "src/library/sharing/message_channel.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "src/library/base/printable.h"
#include "src/library/base/try.h"

namespace commpool::internal {

namespace {

// Room for one descriptor. CMSG_SPACE pads it, and the padding would take a second one.
constexpr size_t kControlBytes = CMSG_LEN(sizeof(int));

// Whether a call that failed does so only now. Sockets are nonblocking, and whoever waits for them comes again.
bool MayComeLater() { return errno == EAGAIN || errno == EINTR; }

// Takes the descriptor that came with a message, and closes all others, which belong to this process as well.
void TakeDescriptor(const msghdr& header, Received& received) {
  received.lost_descriptor = (header.msg_flags & MSG_CTRUNC) != 0;
  for (const cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr;
       part = CMSG_NXTHDR(const_cast<msghdr*>(&header), const_cast<cmsghdr*>(part))) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= part->cmsg_len; at += sizeof(int)) {
      int descriptor = -1;
      std::memcpy(&descriptor, reinterpret_cast<const char*>(part) + at, sizeof(descriptor));
      received.descriptor = FileDescriptor(descriptor);
    }
  }
}

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

Status Malformed(const std::string& why) { return InvalidArgument("a malformed message: ", why); }

}  // namespace

Result<PrivateDescriptor> CopyOf(int descriptor) {
  PrivateDescriptor copy =
      PrivateDescriptor::Make([&] { return FileDescriptor(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)); });
  if (!copy.valid()) return SystemFailure("copying a descriptor");
  return copy;
}

Status CheckAnswer(const Received& answer) {
  if (answer.message.kind == ShareKind::kRefused) return StatusOf(answer.message);
  if (!answer.lost_descriptor) return Status();
  return OutOfMemory("this process has no file descriptor left (ulimit -n)");
}

Result<std::optional<Received>> MessageChannel::Receive() {
  std::array<char, kMostShareBytes + 1> bytes;
  alignas(cmsghdr) std::array<char, kControlBytes> control;
  iovec part{bytes.data(), bytes.size()};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t count = recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC);
  if (count < 0 && MayComeLater()) return std::optional<Received>();
  if (count < 0) return SystemFailure("recvmsg failed");
  Received received;
  TakeDescriptor(header, received);  // also of an empty message
  if (count == 0) return RemoteFailure("the other process ended the connection");
  received.message = COMMPOOL_TRY(DecodeShare({bytes.data(), static_cast<size_t>(count)}));
  return std::optional<Received>(std::move(received));
}

Status MessageChannel::Send(const ShareMessage& message, PrivateDescriptor descriptor) {
  queued_.push_back({EncodeShare(message), std::move(descriptor)});
  return SendQueued();
}

Status MessageChannel::SendQueued() {
  for (; !queued_.empty(); queued_.pop_front()) {
    Outgoing& next = queued_.front();
    alignas(cmsghdr) std::array<char, kControlBytes> control = {};
    iovec part{next.bytes.data(), next.bytes.size()};
    msghdr header = {};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (next.descriptor.valid()) {
      header.msg_control = control.data();
      header.msg_controllen = control.size();
      cmsghdr* const rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      const int number = next.descriptor.get();
      std::memcpy(CMSG_DATA(rights), &number, sizeof(number));
    }
    if (sendmsg(socket_.get(), &header, MSG_NOSIGNAL) >= 0) continue;
    return MayComeLater() ? Status() : SystemFailure("sendmsg failed");
  }
  return Status();
}

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
    return NotSupported("the other process speaks version ", header.version, " of shared pools, this one version ",
                        kShareVersion, ": run one commpool in both");
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
