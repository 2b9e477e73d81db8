// Communicators that are made from others: split, shrink, grow. Revoke is here too, because it comes before a shrink.
#include <set>

#include "src/emulator/nccl/api.h"
#include "src/emulator/nccl/group.h"
#include "src/emulator/nccl/live_communicators.h"
#include "src/emulator/nccl/log.h"
#include "src/emulator/nccl/new_communicator.h"
#include "src/library/driver/newer_nccl.h"

namespace commpool::internal::emulated_nccl {

namespace {

using Child = EmulatedCommunicator::Child;

// Agrees with the other ranks of the parent, then makes the child.
template <typename Agree>
ncclResult_t MakeChild(const char* name, const Call& call, ncclComm_t* child, const ncclConfig_t* config, bool shares,
                       const Agree& agree) {
  Group& group = Group::OfThisThread();
  const std::shared_ptr<EmulatedCommunicator>& parent = call.communicator();
  Configuration configuration;
  if (const ncclResult_t result = ReadConfig(config, parent->configuration(), &configuration); result != ncclSuccess) {
    return group.Note(result);
  }
  const NewCommunicator created(child, configuration);
  return group.WaitForRanks(
      parent,
      [name, parent, shares, agree, created] {
        Child place;
        const ncclResult_t result = agree(*parent, &place);
        if (result != ncclSuccess) return result;
        return created.Make({.ranks = place.ranks,
                             .rank = place.rank,
                             .device = parent->device(),
                             .call = name,
                             .memory = shares ? parent->memory() : nullptr},
                            place.id);
      },
      created.async());
}

ncclResult_t Refuse(const char* name, const char* reason) {
  COMMPOOL_NCCL_WARN("%s : %s", name, reason);
  return Group::OfThisThread().Note(ncclInvalidArgument);
}

// A new rank only joins.
ncclResult_t JoinGrown(int ranks, const ncclUniqueId* id, int rank, ncclComm_t* newcomm, const ncclConfig_t* config) {
  if (id == nullptr || rank < 0 || rank >= ranks || MagicOf(*id) == 0) {
    return Refuse("ncclCommGrow", "a new rank needs an id and its number");
  }
  Configuration configuration;
  if (const ncclResult_t result = ReadConfig(config, {}, &configuration); result != ncclSuccess) {
    return Group::OfThisThread().Note(result);
  }
  CUdevice device = 0;
  if (GetDriver().cuCtxGetDevice(&device) != CUDA_SUCCESS) device = 0;
  const NewCommunicator created(newcomm, configuration);
  return Group::OfThisThread().Initialize(
      [=, id = *id] {
        return created.Make({.ranks = ranks, .rank = rank, .device = device, .call = "ncclCommGrow"}, id);
      },
      created.async());
}

}  // namespace

}  // namespace commpool::internal::emulated_nccl

using namespace commpool::internal::emulated_nccl;  // NOLINT: this file defines nccl.h's functions with it

COMMPOOL_NCCL_API ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                                             ncclConfig_t* config) {
  const Call call("ncclCommSplit", comm);
  if (call.result() != ncclSuccess) return Group::OfThisThread().Note(call.result());
  if (newcomm == nullptr || color < NCCL_SPLIT_NOCOLOR) return Refuse("ncclCommSplit", "invalid color or result");
  if (color == NCCL_SPLIT_NOCOLOR) {
    *newcomm = nullptr;
    const std::shared_ptr<EmulatedCommunicator>& parent = call.communicator();
    return Group::OfThisThread().WaitForRanks(parent, [parent, color, key] {
      Child nobody;
      return parent->AgreeOnSplit(color, key, &nobody);
    });
  }
  return MakeChild(
      "ncclCommSplit", call, newcomm, config, call->configuration().split_shares,
      [color, key](EmulatedCommunicator& parent, Child* child) { return parent.AgreeOnSplit(color, key, child); });
}
COMMPOOL_NCCL_PROFILED(ncclCommSplit);

COMMPOOL_NCCL_API ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                                              ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) {
  const Call call("ncclCommShrink", comm);
  if (call.result() != ncclSuccess) return Group::OfThisThread().Note(call.result());
  if (newcomm == nullptr || excludeRanksList == nullptr || excludeRanksCount <= 0) {
    return Refuse("ncclCommShrink", "no ranks to leave out, or no result");
  }
  if (shrinkFlags != NCCL_SHRINK_DEFAULT && shrinkFlags != NCCL_SHRINK_ABORT) {
    return Refuse("ncclCommShrink", "unknown flags");
  }
  const std::set<int> excluded(excludeRanksList, excludeRanksList + excludeRanksCount);
  if (*excluded.begin() < 0 || *excluded.rbegin() >= call->ranks() || excluded.count(call->rank()) != 0) {
    return Refuse("ncclCommShrink", "the list names no rank of the communicator, or the caller");
  }
  const bool shares = call->configuration().shrink_shares && shrinkFlags == NCCL_SHRINK_DEFAULT && !call->stopped();
  return MakeChild("ncclCommShrink", call, newcomm, config, shares,
                   [excluded, shrinkFlags](EmulatedCommunicator& parent, Child* child) {
                     return parent.AgreeOnShrink(excluded, shrinkFlags, child);
                   });
}
COMMPOOL_NCCL_PROFILED(ncclCommShrink);

COMMPOOL_NCCL_API ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* uniqueId) {
  const Call call("ncclCommGetUniqueId", comm);
  if (call.result() != ncclSuccess) return call.result();
  if (uniqueId == nullptr) return ncclInvalidArgument;
  commpool::Result<ncclUniqueId> id = MakeUniqueId();
  if (!id.ok()) return ncclSystemError;
  *uniqueId = *id;
  return ncclSuccess;
}

COMMPOOL_NCCL_API ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank,
                                            ncclComm_t* newcomm, ncclConfig_t* config) {
  if (newcomm == nullptr) return Refuse("ncclCommGrow", "no result");
  if (comm == nullptr) {
    const ncclResult_t injected = EnterCall("ncclCommGrow");
    return injected != ncclSuccess ? injected : JoinGrown(nRanks, uniqueId, rank, newcomm, config);
  }
  const Call call("ncclCommGrow", comm);
  if (call.result() != ncclSuccess) return Group::OfThisThread().Note(call.result());
  if (nRanks <= call->ranks() || rank != -1) return Refuse("ncclCommGrow", "an old rank passes -1 and a larger number");
  const ncclUniqueId id = uniqueId != nullptr ? *uniqueId : ncclUniqueId{};
  const bool brings_id = uniqueId != nullptr;
  return MakeChild("ncclCommGrow", call, newcomm, config, false,
                   [nRanks, id, brings_id](EmulatedCommunicator& parent, Child* child) {
                     return parent.AgreeOnGrow(nRanks, brings_id ? &id : nullptr, child);
                   });
}

COMMPOOL_NCCL_API ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags) {
  const Call call("ncclCommRevoke", comm);
  if (call.result() != ncclSuccess) return call.result();
  if (revokeFlags != NCCL_REVOKE_DEFAULT) return ncclInvalidArgument;
  const std::shared_ptr<EmulatedCommunicator>& communicator = call.communicator();
  if (communicator->async() == nullptr) return communicator->Revoke();
  return AsyncWork::Run({communicator->async()}, [communicator] { return communicator->Revoke(); });
}
COMMPOOL_NCCL_PROFILED(ncclCommRevoke);
