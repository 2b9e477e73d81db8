// The part of a communicator that gives its own memory back and makes it again (NCCL 2.29.7 and 2.30.7,
// src/mem_manager.cc).
#include <string>

#include "src/emulator/nccl/communicator.h"
#include "src/emulator/nccl/live_communicators.h"
#include "src/emulator/nccl/log.h"

namespace commpool::internal::emulated_nccl {

namespace {

// No function of nccl.h: tests inject a failure of an import by this name. A resumption asks it once for each peer.
constexpr const char* kImport = "ncclCommResume import";

ncclResult_t RefuseState(const char* state) {
  COMMPOOL_NCCL_WARN("MemManager: %s", state);
  return ncclInvalidUsage;
}

}  // namespace

ncclResult_t EmulatedCommunicator::Sleep() {
  const char* const call = "ncclCommSuspend";
  if (async_error() != ncclSuccess) return async_error();
  if (memory_->suspended()) return RefuseState("Already suspended");
  const CurrentContext guard(context_);
  if (GetDriver().cuCtxSynchronize() != CUDA_SUCCESS) return ncclUnhandledCudaError;
  // NCCL's barrier has no deadline. Here a missing rank is reported.
  const Result<std::vector<Message>> barrier = ExchangeControl(call, AllRanks(), {});
  if (!barrier.ok()) return FailControl(call, barrier.status());
  return memory_->Release();
}

// Each rank makes its memory before it waits for the others. Failed imports are only logged: the call still succeeds.
ncclResult_t EmulatedCommunicator::Wake() {
  const char* const call = "ncclCommResume";
  if (async_error() != ncclSuccess) return async_error();
  if (!memory_->suspended()) return RefuseState("Not in suspended state");
  const CurrentContext guard(context_);
  if (const ncclResult_t result = memory_->Restore(); result != ncclSuccess) return result;
  const Result<std::vector<Message>> barrier = ExchangeControl(call, AllRanks(), {});
  if (!barrier.ok()) return FailControl(call, barrier.status());
  not_imported_.store(-1);
  for (const int peer : AllRanks()) {
    if (peer == rank_ || EnterCall(kImport) == ncclSuccess) continue;
    COMMPOOL_NCCL_WARN("MemManager: memory of rank %d is not imported again", peer);
    not_imported_.store(peer);
  }
  return ncclSuccess;
}

std::string EmulatedCommunicator::WhyNoMemory() const {
  if (memory_ == nullptr) return "";
  if (memory_->suspended()) return "the communicator is suspended";
  const int peer = not_imported_.load();
  return peer < 0 ? "" : "the memory of rank " + std::to_string(peer) + " did not come back";
}

ncclResult_t EmulatedCommunicator::CheckAwake(const char* call) const {
  if (memory_ == nullptr || !memory_->suspended()) return ncclSuccess;
  GetDriver().commpoolEmulatorReport("a suspended communicator is used",
                                     ("rank " + std::to_string(rank_) + " in " + call).c_str());
  return ncclInvalidUsage;
}

}  // namespace commpool::internal::emulated_nccl
