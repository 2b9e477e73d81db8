// Collectives and groups.
#include "src/emulator/nccl/api.h"
#include "src/emulator/nccl/group.h"
#include "src/emulator/nccl/live_communicators.h"

namespace commpool::internal::emulated_nccl {

namespace {

ncclResult_t Collective(const char* name, ncclComm_t comm, CollectiveRequest request) {
  Group& group = Group::OfThisThread();
  const Call call(name, comm);
  if (call.result() != ncclSuccess) return group.Note(call.result());
  ncclResult_t result = call->ResolveOperation(&request);
  if (result == ncclSuccess) result = call->Check(request);
  if (result != ncclSuccess) return group.Note(result);
  const std::shared_ptr<EmulatedCommunicator>& communicator = call.communicator();
  return group.Launch(communicator, [communicator, request] { return communicator->Launch(request); });
}

ncclResult_t Broadcast(const char* name, const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, cudaStream_t stream) {
  return Collective(name, comm,
                    {.kind = CollectiveKind::kBroadcast,
                     .send = send,
                     .receive = receive,
                     .count = count,
                     .type = type,
                     .root = root,
                     .stream = stream});
}

}  // namespace

}  // namespace commpool::internal::emulated_nccl

using namespace commpool::internal::emulated_nccl;  // NOLINT: this file defines nccl.h's functions with it

COMMPOOL_NCCL_API ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                             ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                             cudaStream_t stream) {
  return Collective("ncclAllReduce", comm,
                    {.kind = CollectiveKind::kAllReduce,
                     .send = sendbuff,
                     .receive = recvbuff,
                     .count = count,
                     .type = datatype,
                     .operation = op,
                     .stream = stream});
}
COMMPOOL_NCCL_PROFILED(ncclAllReduce);

COMMPOOL_NCCL_API ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                             ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return Collective("ncclAllGather", comm,
                    {.kind = CollectiveKind::kAllGather,
                     .send = sendbuff,
                     .receive = recvbuff,
                     .count = sendcount,
                     .type = datatype,
                     .stream = stream});
}
COMMPOOL_NCCL_PROFILED(ncclAllGather);

COMMPOOL_NCCL_API ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                             ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return Broadcast("ncclBroadcast", sendbuff, recvbuff, count, datatype, root, comm, stream);
}
COMMPOOL_NCCL_PROFILED(ncclBroadcast);

COMMPOOL_NCCL_API ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                                         cudaStream_t stream) {
  return Broadcast("ncclBcast", buff, buff, count, datatype, root, comm, stream);
}
COMMPOOL_NCCL_PROFILED(ncclBcast);

COMMPOOL_NCCL_API ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                                 ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                                 cudaStream_t stream) {
  return Collective("ncclReduceScatter", comm,
                    {.kind = CollectiveKind::kReduceScatter,
                     .send = sendbuff,
                     .receive = recvbuff,
                     .count = recvcount,
                     .type = datatype,
                     .operation = op,
                     .stream = stream});
}
COMMPOOL_NCCL_PROFILED(ncclReduceScatter);

COMMPOOL_NCCL_API ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                          ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return Collective("ncclReduce", comm,
                    {.kind = CollectiveKind::kReduce,
                     .send = sendbuff,
                     .receive = recvbuff,
                     .count = count,
                     .type = datatype,
                     .operation = op,
                     .root = root,
                     .stream = stream});
}
COMMPOOL_NCCL_PROFILED(ncclReduce);

COMMPOOL_NCCL_API ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                                        ncclScalarResidence_t residence, ncclComm_t comm) {
  const Call call("ncclRedOpCreatePreMulSum", comm);
  return call.result() != ncclSuccess ? call.result() : call->AddScaledSum(scalar, datatype, residence, op);
}
COMMPOOL_NCCL_PROFILED(ncclRedOpCreatePreMulSum);

COMMPOOL_NCCL_API ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  const Call call("ncclRedOpDestroy", comm);
  return call.result() != ncclSuccess ? call.result() : call->RemoveScaledSum(op);
}
COMMPOOL_NCCL_PROFILED(ncclRedOpDestroy);

COMMPOOL_NCCL_API ncclResult_t ncclGroupStart() {
  if (const ncclResult_t injected = EnterCall("ncclGroupStart"); injected != ncclSuccess) return injected;
  Group::OfThisThread().Start();
  return ncclSuccess;
}
COMMPOOL_NCCL_PROFILED(ncclGroupStart);

COMMPOOL_NCCL_API ncclResult_t ncclGroupEnd() {
  if (const ncclResult_t injected = EnterCall("ncclGroupEnd"); injected != ncclSuccess) return injected;
  return Group::OfThisThread().End();
}
COMMPOOL_NCCL_PROFILED(ncclGroupEnd);
