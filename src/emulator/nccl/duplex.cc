#include "src/emulator/nccl/duplex.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "src/library/base/file_descriptor.h"
#include "src/library/base/interruption.h"
#include "src/library/base/try.h"

namespace commpool::internal::emulated_nccl {

namespace {

// One of the two directions, and how far it is.
struct Half {
  const Connection& connection;
  const bool sends;
  char* data;
  size_t left;

  Status Failure(StatusCode code, const std::string& reason) const {
    return Status(code, (sends ? "sending to " : "receiving from ") + connection.peer() + ": " + reason);
  }

  // Moves as much as the socket can take or has now.
  Status MoveSome() {
    while (left > 0) {
      const int socket = connection.descriptor();
      const ssize_t count = sends ? send(socket, data, left, MSG_NOSIGNAL) : recv(socket, data, left, 0);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      if (count < 0) return Failure(CodeOfError(errno), std::strerror(errno));
      if (count == 0) return Failure(StatusCode::kRemoteFailure, "the peer closed");
      data += count;
      left -= static_cast<size_t>(count);
    }
    return Status();
  }

  // poll skips a negative descriptor.
  pollfd Wait() const {
    return {left > 0 ? connection.descriptor() : -1, static_cast<short>(sends ? POLLOUT : POLLIN), 0};
  }
};

}  // namespace

Status SendAndReceive(Connection& to, const void* sent, size_t sent_bytes, Connection& from, void* received,
                      size_t received_bytes, Deadline deadline) {
  Half out{to, true, static_cast<char*>(const_cast<void*>(sent)), sent_bytes};
  Half in{from, false, static_cast<char*>(received), received_bytes};
  for (WaitSlices slices(deadline);;) {
    COMMPOOL_TRY(out.MoveSome());
    COMMPOOL_TRY(in.MoveSome());
    if (out.left == 0 && in.left == 0) return Status();
    pollfd waits[] = {out.Wait(), in.Wait()};
    while (poll(waits, 2, PollWait(slices.end())) <= 0) {
      if (!slices.Over()) continue;
      return (in.left > 0 ? in : out).Failure(StatusCode::kDeadlineExceeded, "no answer before the deadline");
    }
  }
}

}  // namespace commpool::internal::emulated_nccl
