#include "src/emulator/nccl/exchange.h"

#include <cstring>

#include "src/emulator/nccl/driver.h"

namespace commpool::internal::emulated_nccl {

namespace {

constexpr uint64_t kMostBytes = 1 << 20;

}  // namespace

Status SendMessage(Connection& connection, const Message& message, Deadline deadline) {
  const uint64_t bytes = message.size();
  Message sent(sizeof bytes + message.size());
  std::memcpy(sent.data(), &bytes, sizeof bytes);
  if (!message.empty()) std::memcpy(sent.data() + sizeof bytes, message.data(), message.size());
  return connection.Send(sent.data(), sent.size(), deadline);
}

Status ReceiveMessage(Connection& connection, Message& message, Deadline deadline) {
  uint64_t bytes = 0;
  if (Status status = connection.Receive(&bytes, sizeof bytes, deadline); !status.ok()) return status;
  if (bytes > kMostBytes) return Status(StatusCode::kRemoteFailure, "the peer sends something else");
  message.resize(bytes);
  return connection.Receive(message.data(), message.size(), deadline);
}

Status NameRank(int rank, const Status& status) {
  if (status.ok() || status.code() == StatusCode::kDisagreement) return status;
  if (status.code() == StatusCode::kDeadlineExceeded) {
    return Status(status.code(), "rank " + std::to_string(rank) + " did not arrive");
  }
  return Status(StatusCode::kRemoteFailure, "rank " + std::to_string(rank) + " is gone (" + status.message() + ")");
}

std::string JoinRanks(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

Result<std::vector<Message>> ExchangeAll(Mesh& mesh, int rank, int ranks, const Message& own, Deadline deadline) {
  if (RunsAlone()) return std::vector<Message>(static_cast<size_t>(ranks), own);
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    if (Status status = SendMessage(mesh.to(peer), own, deadline); !status.ok()) return NameRank(peer, status);
  }
  std::vector<Message> messages(static_cast<size_t>(ranks));
  messages[static_cast<size_t>(rank)] = own;
  std::vector<int> missing;
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    const Status status = ReceiveMessage(mesh.to(peer), messages[static_cast<size_t>(peer)], deadline);
    if (status.code() == StatusCode::kDeadlineExceeded) {
      missing.push_back(peer);
    } else if (!status.ok()) {
      return NameRank(peer, status);
    }
  }
  if (missing.empty()) return messages;
  return Status(StatusCode::kDeadlineExceeded, "rank " + JoinRanks(missing) + " did not arrive");
}

}  // namespace commpool::internal::emulated_nccl
