// Every rank tells every other rank something, and waits for what they tell. One thread at a time on a mesh.
#ifndef COMMPOOL_SRC_EMULATOR_NCCL_EXCHANGE_H_
#define COMMPOOL_SRC_EMULATOR_NCCL_EXCHANGE_H_

#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/emulator/nccl/bootstrap.h"

namespace commpool::internal::emulated_nccl {

using Message = std::vector<char>;

// One message to or from one peer. A message has at most 1 MiB.
Status SendMessage(Connection& connection, const Message& message, Deadline deadline);
Status ReceiveMessage(Connection& connection, Message& message, Deadline deadline);

// The same failure, naming the rank.
Status NameRank(int rank, const Status& status);

// Messages by rank, this rank's own among them. The failure names every rank that did not arrive before the deadline
// (kDeadlineExceeded) or the one whose connection broke (kRemoteFailure).
Result<std::vector<Message>> ExchangeAll(Mesh& mesh, int rank, int ranks, const Message& own, Deadline deadline);

// "1, 3".
std::string JoinRanks(const std::vector<int>& ranks);

}  // namespace commpool::internal::emulated_nccl

#endif  // COMMPOOL_SRC_EMULATOR_NCCL_EXCHANGE_H_
