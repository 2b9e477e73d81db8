#include "src/registration/small_all_gather.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "src/base/check.h"
#include "src/base/host_patience.h"
#include "src/base/try.h"
#include "src/driver/diagnosis.h"

namespace commpool::internal {

namespace {

using Clock = std::chrono::steady_clock;
using Moment = Clock::time_point;

Status Missing(const Communicator& communicator, const GatherPurpose& purpose, uint64_t deadline_ms) {
  return Status(StatusCode::kDeadlineExceeded, std::string(purpose.call) + ": waited " + std::to_string(deadline_ms) +
                                                   " ms for all of the " + std::to_string(communicator.ranks) +
                                                   " ranks of the communicator: " + purpose.likely_cause);
}

// It may block on the host: ranks connect at a communicator's first collective.
std::future<ncclResult_t> Launch(const Driver& driver, const Communicator& communicator, const GatherScratch& scratch,
                                 CUdeviceptr sent, size_t words) {
  return CallSeparately(driver, [all_gather = driver.nccl.ncclAllGather, handle = communicator.handle, sent,
                                 received = scratch.address(), words, stream = scratch.stream()] {
    return all_gather(reinterpret_cast<const void*>(sent), reinterpret_cast<void*>(received), words, ncclInt32, handle,
                      stream);
  });
}

Status AwaitStream(const Driver& driver, CUstream stream, const Communicator& communicator,
                   const GatherPurpose& purpose, uint64_t deadline_ms, Moment deadline) {
  for (;;) {
    const CUresult result = driver.cuda.cuStreamQuery(stream);
    if (result != CUDA_ERROR_NOT_READY) {
      return CheckCuda(driver, result,
                       {.call = "cuStreamQuery", .device = communicator.device, .purpose = "address exchange"});
    }
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = driver.nccl.ncclCommGetAsyncError(communicator.handle, &state);
    if (asked != ncclSuccess || (state != ncclSuccess && state != ncclInProgress)) {
      return CheckNccl(driver, asked != ncclSuccess ? asked : state,
                       {.call = "ncclAllGather", .device = communicator.device}, communicator.handle);
    }
    COMMPOOL_TRY(communicator.CheckNoneLost(purpose.call));
    if (Clock::now() > deadline) return Missing(communicator, purpose, deadline_ms);
    std::this_thread::sleep_for(
        std::chrono::microseconds(20));  // a stream with NCCL's kernel: a host wait has no bound
  }
}

// Waits until the bytes of all ranks have come, or the deadline has passed.
Status AwaitGather(const Driver& driver, SmallGather& gather, const Communicator& communicator,
                   const GatherPurpose& purpose, uint64_t deadline_ms, Moment deadline) {
  const bool returned = HasReturned(gather.call, communicator, deadline);
  COMMPOOL_TRY(communicator.CheckNoneLost(purpose.call));
  if (!returned) return Missing(communicator, purpose, deadline_ms);
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  Status status = AwaitCommunicator(driver, communicator, gather.call.get(), "ncclAllGather", gather.scratch.bytes(),
                                    static_cast<uint64_t>(std::max<int64_t>(left.count(), 0)));
  if (status.ok()) return AwaitStream(driver, gather.scratch.stream(), communicator, purpose, deadline_ms, deadline);
  ncclResult_t state = ncclSuccess;
  driver.nccl.ncclCommGetAsyncError(communicator.handle, &state);
  if (state == ncclInProgress) gather.busy = communicator.handle;
  return status.code() == StatusCode::kDeadlineExceeded ? Missing(communicator, purpose, deadline_ms) : status;
}

}  // namespace

Result<std::vector<std::string>> GatherOver(const Driver& driver, const Communicator& communicator,
                                            const std::string& mine, const GatherPurpose& purpose, uint64_t deadline_ms,
                                            UnansweredGathers& unanswered) {
  COMMPOOL_CHECK(mine.size() % sizeof(int32_t) == 0, "a gather of half a word");
  unanswered.NoteIdle(communicator.handle);  // DescribeCommunicator has waited until it was idle
  const Moment deadline = Clock::now() + std::chrono::milliseconds(deadline_ms);
  const uint64_t all_bytes = mine.size() * static_cast<uint64_t>(communicator.ranks);
  GatherScratch scratch = COMMPOOL_TRY(GatherScratch::Make(driver, mine.size() + all_bytes));
  const CUdeviceptr received = scratch.address();
  const CUdeviceptr sent = received + all_bytes;
  Status status = CheckCuda(driver, driver.cuda.cuMemcpyHtoDAsync(sent, mine.data(), mine.size(), scratch.stream()),
                            {.call = "cuMemcpyHtoDAsync", .device = communicator.device, .bytes = mine.size()});
  if (!status.ok()) return status;

  SmallGather gather{.scratch = std::move(scratch)};
  gather.call = Launch(driver, communicator, gather.scratch, sent, mine.size() / sizeof(int32_t));
  status = AwaitGather(driver, gather, communicator, purpose, deadline_ms, deadline);
  if (!status.ok()) {
    unanswered.Keep(std::move(gather));
    return status;
  }

  std::string all = Insist([&] { return std::string(all_bytes, '\0'); });
  COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuMemcpyDtoH(all.data(), received, all_bytes),
                         {.call = "cuMemcpyDtoH", .device = communicator.device, .bytes = all_bytes}));
  return Insist([&] {
    std::vector<std::string> parts;
    for (uint64_t offset = 0; offset < all_bytes; offset += mine.size()) {
      parts.push_back(all.substr(offset, mine.size()));
    }
    return parts;
  });
}

}  // namespace commpool::internal
