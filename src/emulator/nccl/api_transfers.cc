// Sends and receives, and the collectives that NCCL makes of them.
#include <utility>
#include <vector>

#include "src/emulator/nccl/api.h"
#include "src/emulator/nccl/group.h"
#include "src/emulator/nccl/live_communicators.h"
#include "src/emulator/nccl/log.h"
#include "src/emulator/nccl/reduction.h"

namespace commpool::internal::emulated_nccl {

namespace {

using Direction = PeerTransfer::Direction;

ncclResult_t LaunchTransfers(const char* name, const Call& call, std::vector<PeerTransfer> transfers, CUstream stream) {
  Group& group = Group::OfThisThread();
  for (const PeerTransfer& transfer : transfers) {
    if (const ncclResult_t result = call->Check(name, transfer); result != ncclSuccess) return group.Note(result);
  }
  return group.Transfer(call.communicator(), stream, std::move(transfers));
}

ncclResult_t OneTransfer(const char* name, const PeerTransfer& transfer, ncclComm_t comm, cudaStream_t stream) {
  const Call call(name, comm);
  if (call.result() != ncclSuccess) return Group::OfThisThread().Note(call.result());
  return LaunchTransfers(name, call, {transfer}, stream);
}

// Adds one transfer of one block with each rank.
void AddTransfers(Direction direction, const void* buffer, size_t count, ncclDataType_t type, int ranks,
                  std::vector<PeerTransfer>* transfers) {
  const size_t step = count * ElementBytes(type);
  char* const begin = static_cast<char*>(const_cast<void*>(buffer));
  for (int peer = 0; peer < ranks; ++peer) {
    char* const place = begin == nullptr ? nullptr : begin + step * static_cast<size_t>(peer);
    transfers->push_back({direction, peer, place, count, type});
  }
}

// Moves blocks from every rank to the root (gather), or from the root to every rank (scatter).
ncclResult_t WithRoot(const char* name, Direction of_root, const void* send, void* receive, size_t count,
                      ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
  const Call call(name, comm);
  if (call.result() != ncclSuccess) return Group::OfThisThread().Note(call.result());
  const bool gathers = of_root == Direction::kReceive;
  std::vector<PeerTransfer> transfers;
  if (call->rank() == root) {
    AddTransfers(of_root, gathers ? receive : send, count, type, call->ranks(), &transfers);
  }
  const Direction of_others = gathers ? Direction::kSend : Direction::kReceive;
  transfers.push_back({of_others, root, gathers ? const_cast<void*>(send) : receive, count, type});
  return LaunchTransfers(name, call, std::move(transfers), stream);
}

}  // namespace

}  // namespace commpool::internal::emulated_nccl

using namespace commpool::internal::emulated_nccl;  // NOLINT: this file defines nccl.h's functions with it

COMMPOOL_NCCL_API ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                                        ncclComm_t comm, cudaStream_t stream) {
  return OneTransfer("ncclSend", {Direction::kSend, peer, const_cast<void*>(sendbuff), count, datatype}, comm, stream);
}
COMMPOOL_NCCL_PROFILED(ncclSend);

COMMPOOL_NCCL_API ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                                        ncclComm_t comm, cudaStream_t stream) {
  return OneTransfer("ncclRecv", {Direction::kReceive, peer, recvbuff, count, datatype}, comm, stream);
}
COMMPOOL_NCCL_PROFILED(ncclRecv);

COMMPOOL_NCCL_API ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                            ncclComm_t comm, cudaStream_t stream) {
  const Call call("ncclAlltoAll", comm);
  if (call.result() != ncclSuccess) return Group::OfThisThread().Note(call.result());
  std::vector<PeerTransfer> transfers;
  AddTransfers(Direction::kSend, sendbuff, count, datatype, call->ranks(), &transfers);
  AddTransfers(Direction::kReceive, recvbuff, count, datatype, call->ranks(), &transfers);
  return LaunchTransfers("ncclAlltoAll", call, std::move(transfers), stream);
}
COMMPOOL_NCCL_PROFILED(ncclAlltoAll);

COMMPOOL_NCCL_API ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                          int root, ncclComm_t comm, cudaStream_t stream) {
  return WithRoot("ncclGather", Direction::kReceive, sendbuff, recvbuff, count, datatype, root, comm, stream);
}
COMMPOOL_NCCL_PROFILED(ncclGather);

COMMPOOL_NCCL_API ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                           int root, ncclComm_t comm, cudaStream_t stream) {
  return WithRoot("ncclScatter", Direction::kSend, sendbuff, recvbuff, count, datatype, root, comm, stream);
}
COMMPOOL_NCCL_PROFILED(ncclScatter);
