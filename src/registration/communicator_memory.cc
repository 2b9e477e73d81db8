#include "src/registration/communicator_memory.h"

#include <chrono>
#include <functional>
#include <future>
#include <string>

#include "src/base/try.h"
#include "src/driver/diagnosis.h"
#include "src/registration/separate_call.h"

namespace commpool::internal {

namespace {

Status Carry(const Driver& driver, const Communicator& communicator, const char* name,
             std::function<ncclResult_t()> call, uint64_t deadline_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(deadline_ms);
  CUcontext context = nullptr;
  driver.cuda.cuCtxGetCurrent(&context);
  std::future<ncclResult_t> result = CallSeparately(driver, context, std::move(call));
  const bool returned = HasReturned(result, communicator, deadline);
  COMMPOOL_TRY(communicator.CheckNoneLost(name));
  if (!returned) {
    return Status(StatusCode::kDeadlineExceeded,
                  std::string(name) + " did not return within " + std::to_string(deadline_ms) +
                      " ms: it waits for a rank that has not come, or that NCCL refused the call; abort the "
                      "communicator");
  }
  const ncclResult_t answer = result.get();
  if (answer != ncclInvalidUsage) return AwaitCommunicator(driver, communicator, answer, name, 0, deadline_ms);
  return CheckNccl(driver, answer,
                   {.call = name,
                    .device = communicator.device,
                    .likely_cause = "the communicator shares resources with one that was split from it, or from which "
                                    "it was split, or NCCL_DISABLE_MEM_MANAGER is set"},
                   communicator.handle);
}

}  // namespace

Result<CommunicatorMemory> MemoryOf(const Driver& driver, ncclComm_t communicator) {
  if (std::string why = driver.nccl.WhyNoSleep(); !why.empty()) return Status(StatusCode::kNotSupported, why);
  const auto ask = [&](ncclCommMemStat_t figure, uint64_t* value) {
    return CheckNccl(driver, driver.nccl.ncclCommMemStats(communicator, figure, value), {.call = "ncclCommMemStats"},
                     communicator);
  };
  CommunicatorMemory memory;
  uint64_t asleep = 0;
  COMMPOOL_TRY(ask(ncclStatGpuMemTotal, &memory.bytes));
  COMMPOOL_TRY(ask(ncclStatGpuMemSuspend, &memory.sleeping_bytes));
  COMMPOOL_TRY(ask(ncclStatGpuMemSuspended, &asleep));
  memory.asleep = asleep != 0;
  return memory;
}

Status GiveMemoryBack(const Driver& driver, const Communicator& communicator, uint64_t deadline_ms) {
  return Carry(
      driver, communicator, "ncclCommSuspend",
      [call = driver.nccl.ncclCommSuspend, handle = communicator.handle] { return call(handle, NCCL_SUSPEND_MEM); },
      deadline_ms);
}

Status MakeMemoryAgain(const Driver& driver, const Communicator& communicator, uint64_t deadline_ms) {
  return Carry(
      driver, communicator, "ncclCommResume",
      [call = driver.nccl.ncclCommResume, handle = communicator.handle] { return call(handle); }, deadline_ms);
}

}  // namespace commpool::internal
