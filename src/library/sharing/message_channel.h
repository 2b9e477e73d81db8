// A connection between the owner of a shared pool and an importer: messages, each with a descriptor where it needs one.
//
// No call waits. What the other side does not take yet is queued, up to a bound, so a process that stops reading costs
// its peer nothing but the connection. One thread receives; senders have a lock of their own (the holder's).
#ifndef COMMPOOL_SRC_LIBRARY_SHARING_MESSAGE_CHANNEL_H_
#define COMMPOOL_SRC_LIBRARY_SHARING_MESSAGE_CHANNEL_H_

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "commpool/status.h"
#include "src/library/base/file_descriptor.h"
#include "src/library/base/socket.h"
#include "src/library/sharing/share_wire.h"

namespace commpool::internal {

struct Received {
  ShareMessage message;
  FileDescriptor descriptor;
  bool lost_descriptor = false;  // this process had no descriptor left for it
};

// The refusal of a question, and what this process lacks for the answer.
Status CheckAnswer(const Received& answer);

class MessageChannel {
 public:
  static constexpr size_t kMostQueued = 256;

  MessageChannel() = default;
  explicit MessageChannel(PrivateSocket socket) : socket_(std::move(socket)) {}

  int descriptor() const { return socket_.get(); }

  // The next message; nothing where none has come yet. kRemoteFailure where the other side ended; DecodeShare's errors.
  Result<std::optional<Received>> Receive();

  // Sends, or queues. kRemoteFailure where the other side has ended: end the connection.
  Status Send(const ShareMessage& message, FileDescriptor descriptor = {});
  Status SendQueued();
  bool has_queued() const { return !queued_.empty(); }
  // Whether the other side takes nothing any more. An owner ends such a connection, because a stranger's messages shall
  // not grow its queue; an import waits, because its own messages are about blocks that it holds.
  bool is_overfull() const { return queued_.size() > kMostQueued; }

 private:
  struct Outgoing {
    std::string bytes;
    FileDescriptor descriptor;
  };

  PrivateSocket socket_;
  std::deque<Outgoing> queued_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_SHARING_MESSAGE_CHANNEL_H_
