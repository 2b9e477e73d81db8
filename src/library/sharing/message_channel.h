// A connection between the owner of a shared pool and an importer: messages, each with a descriptor where it needs one.
//
// No call waits. What the other side does not take yet is queued, up to a bound, so a process that stops reading costs
// its peer nothing but the connection. One thread receives; senders have a lock of their own (the holder's).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "commpool/status.h"
#include "src/library/base/file_descriptor.h"
#include "src/library/base/socket.h"

namespace commpool::internal {

// What the owner of a shared pool and its importers tell each other, and ranks that offer memory. A message is one
// datagram: a header with the version, the kind, the length and the question's number, four numbers, and a text. Pure:
// any thread. Little-endian, as every host with a GPU.

// Count it up whenever a message changes. The header stays as it is in every version.
inline constexpr uint16_t kShareVersion = 2;

enum class ShareKind : uint16_t {
  kHello = 1,   // importer: secret, pool; text: its events
  kWelcome,     // owner: text: its events, the pool's title; descriptor: the reading board
  kRefused,     // owner, to any question: code; text: why; to none: the pool ends asleep, or the connection ends
  kAskSegment,  // importer: an address in the owner's process, the segment that it knows there
  kSegment,     // owner: address, bytes, number; descriptor or text: a fabric handle, unless the importer knows it
  kAskBlock,    // importer: the block's number
  kBlock,       // owner: address, bytes, the segment's number, its line on the reading board
  kLetGo,       // importer: the block's number: its work on the block is done
  kSleep,       // owner: the deadline in milliseconds; let all memory go; sleeps are numbered as questions are
  kAsleep,      // importer: code; text: why it could not
  kAwake,       // owner: map the memory again
  kWritesGoOn,  // owner, once: a block that the importer holds may be written; open the events while the owner lives
  kTakeOffer,   // a rank: secret, place of the offer; no hello comes before it
  kOffer,       // the rank that offers: descriptor
  kLast = kOffer,
};

struct ShareMessage {
  ShareKind kind = ShareKind::kHello;
  std::array<uint64_t, 4> numbers = {};
  std::string text = {};
  uint64_t question = 0;  // which one an answer is for
};

inline constexpr size_t kMostShareText = 2048;
inline constexpr size_t kMostShareBytes = 24 + 4 * sizeof(uint64_t) + kMostShareText;

// Cuts the text where it is too long.
std::string EncodeShare(const ShareMessage& message);
// kInvalidArgument for bytes that are no message; kNotSupported for one of another version.
Result<ShareMessage> DecodeShare(std::string_view bytes);

// The refusal of a question that tells a failure, and the failure that it tells.
ShareMessage RefusalOf(const Status& status, uint64_t question = 0);
Status StatusOf(const ShareMessage& refusal);

struct Received {
  ShareMessage message;
  FileDescriptor descriptor;
  bool lost_descriptor = false;  // this process had no descriptor left for it
};

// The refusal of a question, and what this process lacks for the answer.
Status CheckAnswer(const Received& answer);

// To send, because the owner of a descriptor may close it while the message is queued.
Result<PrivateDescriptor> CopyOf(int descriptor);

class MessageChannel {
 public:
  static constexpr size_t kMostQueued = 256;

  MessageChannel() = default;
  explicit MessageChannel(PrivateDescriptor socket) : socket_(std::move(socket)) {}

  int descriptor() const { return socket_.get(); }

  // The next message; nothing where none has come yet. kRemoteFailure where the other side ended; DecodeShare's errors.
  Result<std::optional<Received>> Receive();

  // Sends, or queues. kRemoteFailure where the other side has ended: end the connection.
  Status Send(const ShareMessage& message, PrivateDescriptor descriptor = {});
  Status SendQueued();
  bool has_queued() const { return !queued_.empty(); }
  // Whether the other side takes nothing any more. An owner ends such a connection, because a stranger's messages shall
  // not grow its queue; an import waits, because its own messages are about blocks that it holds.
  bool is_overfull() const { return queued_.size() > kMostQueued; }

 private:
  struct Outgoing {
    std::string bytes;
    PrivateDescriptor descriptor;
  };

  PrivateDescriptor socket_;
  std::deque<Outgoing> queued_;
};

}  // namespace commpool::internal
