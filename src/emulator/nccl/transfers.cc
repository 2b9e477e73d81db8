// The part of a communicator that sends and receives. The calls of one group become one operation on their stream.
#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "src/emulator/nccl/collective_times.h"
#include "src/emulator/nccl/communicator.h"
#include "src/emulator/nccl/header_message.h"
#include "src/emulator/nccl/log.h"
#include "src/emulator/nccl/reduction.h"

namespace commpool::internal::emulated_nccl {

namespace {

using Direction = PeerTransfer::Direction;

size_t BytesOf(const PeerTransfer& transfer) { return transfer.count * ElementBytes(transfer.type); }

std::string Describe(uint64_t count, int type) {
  return "count " + std::to_string(count) + ", type " + std::to_string(type);
}

}  // namespace

// The transfers of one group with one peer in one direction. They run one after the other, and those of
// other peers at the same time.
struct EmulatedCommunicator::PeerTransfers {
  struct Part {
    const PeerTransfer* transfer;
    const void* source;  // host pointers
    void* target;
  };
  Direction direction;
  int peer;
  std::vector<Part> parts;
};

ncclResult_t EmulatedCommunicator::Check(const char* call, const PeerTransfer& transfer) const {
  if (finalized_ || stopped_.load()) return ncclInvalidUsage;
  if (async_error() != ncclSuccess) return async_error();
  if (const ncclResult_t result = CheckAwake(call); result != ncclSuccess) return result;
  if (transfer.peer < 0 || transfer.peer >= ranks_) {
    COMMPOOL_NCCL_WARN("%s : invalid peer %d (peer should be in the 0..%d range)", call, transfer.peer, ranks_);
    return ncclInvalidArgument;
  }
  if (ElementBytes(transfer.type) == 0 || !CheckedMultiply(transfer.count, ElementBytes(transfer.type))) {
    COMMPOOL_NCCL_WARN("%s : invalid type %d or count %zu", call, transfer.type, transfer.count);
    return ncclInvalidArgument;
  }
  if (transfer.count == 0) return ncclSuccess;
  const bool sends = transfer.direction == Direction::kSend;
  return CheckBuffer(sends ? "sendbuff" : "recvbuff", transfer.buffer, BytesOf(transfer));
}

ncclResult_t EmulatedCommunicator::LaunchTransfers(CUstream stream, std::vector<PeerTransfer> transfers) {
  std::erase_if(transfers, [](const PeerTransfer& transfer) { return transfer.count == 0; });
  if (transfers.empty()) return ncclSuccess;
  std::vector<const PeerTransfer*> to_self[2];
  for (const PeerTransfer& transfer : transfers) {
    if (transfer.peer == rank_) to_self[transfer.direction == Direction::kSend ? 0 : 1].push_back(&transfer);
  }
  const bool matches = std::equal(
      to_self[0].begin(), to_self[0].end(), to_self[1].begin(), to_self[1].end(),
      [](const PeerTransfer* sent, const PeerTransfer* received) { return BytesOf(*sent) == BytesOf(*received); });
  if (!matches) {
    COMMPOOL_NCCL_WARN("Trying to send to self without a matching recv");
    return ncclInvalidUsage;
  }
  return Launch({.kind = CollectiveKind::kTransfers, .stream = stream, .transfers = std::move(transfers)});
}

CollectivePlan EmulatedCommunicator::PlanTransfers(const CollectiveRequest& request) const {
  size_t bytes[2] = {0, 0};
  for (const PeerTransfer& transfer : request.transfers) {
    const bool sends = transfer.direction == Direction::kSend;
    LogInfo(Subject::kCollective, "%s: buff %p count %zu datatype %d peer %d comm %p [nranks=%d] stream %p",
            sends ? "Send" : "Recv", transfer.buffer, transfer.count, transfer.type, transfer.peer,
            static_cast<const void*>(this), ranks_, static_cast<const void*>(request.stream));
    bytes[sends ? 0 : 1] += BytesOf(transfer);
  }
  CollectivePlan plan;
  plan.duration_us = TransferMicroseconds(std::max(bytes[0], bytes[1]));
  return plan;
}

// A rank sends before it receives. Each arriving message is compared with the expected one.
Status EmulatedCommunicator::RunWithPeer(const PeerTransfers& transfers, const PendingCollective& pending,
                                         double* start_us) {
  const auto deadline = [] { return DeadlineAfter(std::chrono::milliseconds(TimeoutMilliseconds())); };
  Connection& connection = data_.to(transfers.peer);
  for (const PeerTransfers::Part& part : transfers.parts) {
    const size_t bytes = BytesOf(*part.transfer);
    if (transfers.direction == Direction::kSend) {
      CollectiveHeader header;
      header.magic = peers_[0].magic;
      header.kind = CollectiveKind::kTransfers;
      header.count = part.transfer->count;
      header.type = part.transfer->type;
      header.start_us = pending.start_us;
      Status status = SendMessage(connection, MakeMessage(header, pending.operation), deadline());
      if (status.ok() && MovesBytes()) status = connection.Send(part.source, bytes, deadline());
      if (!status.ok()) return status;
      continue;
    }
    Message message;
    if (Status status = ReceiveMessage(connection, message, deadline()); !status.ok()) return status;
    const CollectiveHeader header = HeaderOf(message);
    if (header.kind != CollectiveKind::kTransfers ||
        header.count * ElementBytes(ncclDataType_t(header.type)) != bytes) {
      const std::string details = "rank " + std::to_string(rank_) + " receives " +
                                  Describe(part.transfer->count, part.transfer->type) + " from rank " +
                                  std::to_string(transfers.peer) + ", which is in " + CollectiveName(header.kind) +
                                  " of " + Describe(header.count, header.type);
      GetDriver().commpoolEmulatorReport("a send and its receive differ", details.c_str());
      return Status(StatusCode::kDisagreement, details);
    }
    *start_us = std::max(*start_us, header.start_us);
    JoinClock(message, pending.operation);
    if (!MovesBytes()) continue;
    if (Status status = connection.Receive(part.target, bytes, deadline()); !status.ok()) return status;
  }
  return Status();
}

Status EmulatedCommunicator::RunTransfers(PendingCollective& pending, double* end_us) {
  std::map<std::pair<int, Direction>, PeerTransfers> by_peer;
  size_t sent = 0;
  size_t received = 0;
  for (const PeerTransfer& transfer : pending.request.transfers) {
    const bool sends = transfer.direction == Direction::kSend;
    PeerTransfers& transfers =
        by_peer.try_emplace({transfer.peer, transfer.direction}, PeerTransfers{transfer.direction, transfer.peer, {}})
            .first->second;
    transfers.parts.push_back(
        {&transfer, sends ? pending.reads[sent] : nullptr, sends ? nullptr : pending.writes[received]});
    ++(sends ? sent : received);
  }
  const auto own_sends = by_peer.find({rank_, Direction::kSend});
  if (own_sends != by_peer.end()) {
    const PeerTransfers& own_receives = by_peer.at({rank_, Direction::kReceive});
    for (size_t index = 0; index < own_receives.parts.size(); ++index) {
      const PeerTransfers::Part& part = own_receives.parts[index];
      if (MovesBytes()) std::memmove(part.target, own_sends->second.parts[index].source, BytesOf(*part.transfer));
    }
    by_peer.erase(own_sends);
    by_peer.erase({rank_, Direction::kReceive});
  }
  if (RunsAlone()) by_peer.clear();
  std::vector<Status> results(by_peer.size());
  std::vector<double> starts(by_peer.size(), pending.start_us);
  std::vector<std::thread> threads;
  size_t place = 0;
  for (const auto& [key, transfers] : by_peer) {
    threads.emplace_back([this, &transfers = transfers, &pending, &result = results[place], &start = starts[place]] {
      result = NameRank(transfers.peer, RunWithPeer(transfers, pending, &start));
    });
    ++place;
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& result : results) {
    if (!result.ok()) return result;
  }
  *end_us = pending.plan.duration_us + pending.start_us;
  for (const double start : starts) *end_us = std::max(*end_us, start + pending.plan.duration_us);
  return Status();
}

}  // namespace commpool::internal::emulated_nccl
