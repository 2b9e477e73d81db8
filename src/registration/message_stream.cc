#include "src/registration/message_stream.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include "src/registration/wire.h"

namespace commpool::internal {

namespace {

constexpr uint64_t kLongestMessage = uint64_t{1} << 20;

// Whether a transfer that moved nothing may go on later.
bool MayGoOn(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

void MessageStream::Queue(std::string_view message) {
  WireWriter writer;
  writer.Text(message);
  unsent_ += writer.Take();
}

void MessageStream::SendSome() {
  while (has_unsent()) {
    const ssize_t count = send(connection_.descriptor(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0) {
      open_ = MayGoOn(errno);
      return;
    }
    unsent_.erase(0, static_cast<size_t>(count));
  }
}

std::vector<std::string> MessageStream::ReceiveSome() {
  std::array<char, 1 << 14> piece;
  while (open_) {
    const ssize_t count = recv(connection_.descriptor(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (count <= 0) {
      open_ = count < 0 && MayGoOn(errno);
      break;
    }
    received_.append(piece.data(), static_cast<size_t>(count));
    if (received_.size() > 2 * kLongestMessage) break;  // the rest another time
  }
  return TakeMessages();
}

std::vector<std::string> MessageStream::TakeMessages() {
  std::vector<std::string> messages;
  size_t begin = 0;
  while (received_.size() - begin >= sizeof(uint64_t)) {
    const std::string_view rest = std::string_view(received_).substr(begin);
    const uint64_t bytes = WireReader(rest).Number();
    if (bytes > kLongestMessage) {
      open_ = false;
      break;
    }
    if (rest.size() - sizeof(uint64_t) < bytes) break;
    messages.emplace_back(rest.substr(sizeof(uint64_t), bytes));
    begin += sizeof(uint64_t) + bytes;
  }
  received_.erase(0, begin);
  return messages;
}

}  // namespace commpool::internal
