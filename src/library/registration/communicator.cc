#include "src/library/registration/communicator.h"

#include <algorithm>
#include <string>
#include <thread>

#include "src/library/base/interruption.h"
#include "src/library/base/start_thread.h"
#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"

namespace commpool::internal {

namespace {

using Clock = std::chrono::steady_clock;

// How often a wait for NCCL's call looks whether a rank is lost.
constexpr std::chrono::milliseconds kLook{10};

Status CheckState(const Driver& driver, ncclComm_t handle, uint64_t deadline_ms) {
  ncclResult_t state = ncclSuccess;
  COMMPOOL_TRY(CheckNccl(driver, driver.nccl.ncclCommGetAsyncError(handle, &state),
                         {.call = "ncclCommGetAsyncError", .likely_cause = "the communicator was destroyed"}));
  if (state == ncclInProgress) {
    return AwaitCommunicator(driver, {.handle = handle}, state, "an earlier operation of the communicator", 0,
                             deadline_ms);
  }
  return CheckNccl(driver, state,
                   {.call = "an earlier operation of the communicator",
                    .likely_cause = "the communicator is unusable: abort it and make a new one"},
                   handle);
}

Status Carry(const Driver& driver, const Communicator& communicator, const char* name,
             const std::function<ncclResult_t()>& call, uint64_t deadline_ms) {
  const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(deadline_ms);
  std::future<ncclResult_t> result = CallSeparately(driver, call);
  const bool returned = HasReturned(result, communicator, deadline);
  COMMPOOL_TRY(communicator.CheckNoneLost(name));
  if (!returned) {
    return DeadlineExceeded(name, " did not return within ", deadline_ms,
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

Status CheckNotAsleep(const Driver& driver, ncclComm_t handle) {
  if (!driver.nccl.has_sleep()) return Status();
  uint64_t asleep = 0;
  // Where NCCL's accounts are switched off it answers no question, and no communicator sleeps.
  const ncclResult_t asked = driver.nccl.ncclCommMemStats(handle, ncclStatGpuMemSuspended, &asleep);
  if (asked != ncclSuccess || asleep == 0) return Status();
  return FailedPrecondition("the communicator is asleep: wake it first");
}

Result<Communicator> DescribeCommunicator(const Driver& driver, ncclComm_t handle, uint64_t deadline_ms) {
  if (!driver.nccl.available()) return NotSupported("there is no NCCL here: ", driver.nccl.why_missing);
  if (handle == nullptr) return InvalidArgument("the communicator is null");
  COMMPOOL_TRY(CheckState(driver, handle, deadline_ms));
  COMMPOOL_TRY(CheckNotAsleep(driver, handle));

  Communicator communicator{.handle = handle};
  COMMPOOL_TRY(
      CheckNccl(driver, driver.nccl.ncclCommUserRank(handle, &communicator.rank), {.call = "ncclCommUserRank"}));
  COMMPOOL_TRY(CheckNccl(driver, driver.nccl.ncclCommCount(handle, &communicator.ranks), {.call = "ncclCommCount"}));
  COMMPOOL_TRY(
      CheckNccl(driver, driver.nccl.ncclCommCuDevice(handle, &communicator.device), {.call = "ncclCommCuDevice"}));
  return communicator;
}

Status Communicator::CheckNoneLost(const char* call) const {
  if (lost == nullptr || !lost->any()) return Status();
  return RemoteFailure(call, " cannot finish: ", lost->status().message(), "; abandon the communicator and abort it");
}

ncclResult_t StateOf(const Driver& driver, ncclComm_t handle) {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = driver.nccl.ncclCommGetAsyncError(handle, &state);
  return asked == ncclSuccess ? state : asked;
}

Status AwaitCommunicator(const Driver& driver, const Communicator& communicator, ncclResult_t result, const char* call,
                         uint64_t bytes, uint64_t deadline_ms) {
  WaitSlices slices(Clock::now() + std::chrono::milliseconds(deadline_ms));
  // On a nonblocking communicator the registration of a window may return success before it has finished (nccl4py
  // documents it, NCCL 2.28.9 does it). So the state of the communicator decides.
  if (result == ncclSuccess) result = StateOf(driver, communicator.handle);
  while (result == ncclInProgress) {
    if (slices.Over()) {
      return DeadlineExceeded(call, " did not finish within ", deadline_ms,
                              " ms: a rank is missing or died in the call; abort the "
                              "communicator and abandon it");
    }
    COMMPOOL_TRY(communicator.CheckNoneLost(call));
    std::this_thread::sleep_for(std::chrono::microseconds(50));  // NCCL offers only polling for nonblocking calls
    result = StateOf(driver, communicator.handle);
  }
  return CheckNccl(driver, result, {.call = call, .device = communicator.device, .bytes = bytes}, communicator.handle);
}

std::future<ncclResult_t> CallSeparately(const Driver& driver, const std::function<ncclResult_t()>& call) {
  NoteOldErrorText(driver);
  CUcontext context = nullptr;
  driver.cuda.cuCtxGetCurrent(&context);
  auto task =
      std::make_shared<std::packaged_task<ncclResult_t()>>([set_current = driver.cuda.cuCtxSetCurrent, context, call] {
        return set_current(context) == CUDA_SUCCESS ? call() : ncclUnhandledCudaError;
      });
  // The other ranks are on their way into the call: where the host has no thread, this one makes it without a limit.
  Result<std::thread> thread = StartThread("a call of NCCL", [task] { (*task)(); });
  if (thread.ok()) {
    thread->detach();
  } else {
    (*task)();
  }
  return task->get_future();
}

bool HasReturned(const std::future<ncclResult_t>& call, const Communicator& communicator, Clock::time_point deadline) {
  WaitSlices slices(deadline);
  while (!slices.Over() && !(communicator.lost != nullptr && communicator.lost->any())) {
    if (call.wait_until(std::min(deadline, Clock::now() + kLook)) == std::future_status::ready) return true;
  }
  return false;
}

Result<CommunicatorMemory> MemoryOf(const Driver& driver, ncclComm_t communicator) {
  if (std::string why = driver.nccl.WhyNoSleep(); !why.empty()) return NotSupported(why);
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
