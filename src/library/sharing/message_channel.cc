#include "src/library/sharing/message_channel.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

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

}  // namespace

Status CheckAnswer(const Received& answer) {
  if (answer.message.kind == ShareKind::kRefused) return StatusOf(answer.message);
  if (!answer.lost_descriptor) return Status();
  return Status(StatusCode::kOutOfMemory, "this process has no file descriptor left (ulimit -n)");
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
  if (count < 0) return SystemFailure("recvmsg");
  Received received;
  TakeDescriptor(header, received);  // also of an empty message
  if (count == 0) return Status(StatusCode::kRemoteFailure, "the other process ended the connection");
  received.message = COMMPOOL_TRY(DecodeShare({bytes.data(), static_cast<size_t>(count)}));
  return std::optional<Received>(std::move(received));
}

Status MessageChannel::Send(const ShareMessage& message, FileDescriptor descriptor) {
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
    return MayComeLater() ? Status() : SystemFailure("sendmsg");
  }
  return Status();
}

}  // namespace commpool::internal
