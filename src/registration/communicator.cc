#include "src/registration/communicator.h"

#include <chrono>
#include <thread>

#include "src/base/try.h"
#include "src/driver/diagnosis.h"

namespace commpool::internal {

namespace {

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

}  // namespace

Status CheckNotAsleep(const Driver& driver, ncclComm_t handle) {
  if (!driver.nccl.has_sleep()) return Status();
  uint64_t asleep = 0;
  // Where NCCL's accounts are switched off it answers no question, and no communicator sleeps.
  const ncclResult_t asked = driver.nccl.ncclCommMemStats(handle, ncclStatGpuMemSuspended, &asleep);
  if (asked != ncclSuccess || asleep == 0) return Status();
  return Status(StatusCode::kFailedPrecondition, "the communicator is asleep: wake it first");
}

Result<Communicator> DescribeCommunicator(const Driver& driver, ncclComm_t handle, uint64_t deadline_ms) {
  if (!driver.nccl.available()) {
    return Status(StatusCode::kNotSupported, "there is no NCCL here: " + driver.nccl.why_missing);
  }
  if (handle == nullptr) return Status(StatusCode::kInvalidArgument, "the communicator is null");
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
  return Status(StatusCode::kRemoteFailure, std::string(call) + " cannot finish: " + lost->status().message() +
                                                "; abandon the communicator and abort it");
}

Status AwaitCommunicator(const Driver& driver, const Communicator& communicator, ncclResult_t result, const char* call,
                         uint64_t bytes, uint64_t deadline_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(deadline_ms);
  // On a nonblocking communicator the registration of a window may return success before it has finished (nccl4py
  // documents it, NCCL 2.28.9 does it). So the state of the communicator decides.
  if (result == ncclSuccess && driver.nccl.ncclCommGetAsyncError != nullptr) {
    ncclResult_t state = ncclSuccess;
    if (driver.nccl.ncclCommGetAsyncError(communicator.handle, &state) == ncclSuccess) result = state;
  }
  while (result == ncclInProgress) {
    if (std::chrono::steady_clock::now() > deadline) {
      return Status(StatusCode::kDeadlineExceeded, std::string(call) + " did not finish within " +
                                                       std::to_string(deadline_ms) +
                                                       " ms: a rank is missing or died in the call; abort the "
                                                       "communicator and abandon it");
    }
    if (Status none_lost = communicator.CheckNoneLost(call); !none_lost.ok()) return none_lost;
    std::this_thread::sleep_for(std::chrono::microseconds(50));  // NCCL offers only polling for nonblocking calls
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = driver.nccl.ncclCommGetAsyncError(communicator.handle, &state);
    result = asked == ncclSuccess ? state : asked;
  }
  return CheckNccl(driver, result, {.call = call, .device = communicator.device, .bytes = bytes}, communicator.handle);
}

}  // namespace commpool::internal
