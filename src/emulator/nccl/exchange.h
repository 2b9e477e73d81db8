// Every rank sends one message to every other rank, and waits for theirs. One thread at a time may use a mesh.
#pragma once

#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/emulator/nccl/bootstrap.h"

namespace commpool::internal::emulated_nccl {

using Message = std::vector<char>;

// Sends or receives one message. A message has at most 1 MiB.
Status SendMessage(Connection& connection, const Message& message, Deadline deadline);
Status ReceiveMessage(Connection& connection, Message& message, Deadline deadline);

// Adds the rank's name to a failure.
Status NameRank(int rank, const Status& status);

// Returns the messages by rank, with this rank's own. A failure names every rank that missed the deadline
// (kDeadlineExceeded), or the rank whose connection broke (kRemoteFailure).
Result<std::vector<Message>> ExchangeAll(Mesh& mesh, int rank, int ranks, const Message& own, Deadline deadline);

// Writes ranks as "1, 3".
std::string JoinRanks(const std::vector<int>& ranks);

}  // namespace commpool::internal::emulated_nccl
