#include "src/library/registration/small_all_gather.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "src/library/base/check.h"
#include "src/library/base/interruption.h"
#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"
#include "src/library/driver/graph_handles.h"

namespace commpool::internal {

namespace {

using Clock = std::chrono::steady_clock;
using Moment = Clock::time_point;

Status Missing(const Communicator& communicator, const CallSite& site, uint64_t deadline_ms) {
  return DeadlineExceeded(site.call, ": waited ", deadline_ms, " ms for all of the ", communicator.ranks,
                          " ranks of the communicator: ", site.likely_cause);
}

Status AwaitStream(const Driver& driver, CUstream stream, const Communicator& communicator, const CallSite& site,
                   uint64_t deadline_ms, Moment deadline) {
  WaitSlices slices(deadline);
  for (;;) {
    const CUresult result = driver.cuda.cuStreamQuery(stream);
    if (result != CUDA_ERROR_NOT_READY) {
      return CheckCuda(driver, result,
                       {.call = "cuStreamQuery", .device = communicator.device, .purpose = "address exchange"});
    }
    const ncclResult_t state = StateOf(driver, communicator.handle);
    if (state != ncclSuccess && state != ncclInProgress) {
      return CheckNccl(driver, state, {.call = "ncclAllGather", .device = communicator.device}, communicator.handle);
    }
    COMMPOOL_TRY(communicator.CheckNoneLost(site.call));
    if (slices.Over()) return Missing(communicator, site, deadline_ms);
    std::this_thread::sleep_for(
        std::chrono::microseconds(20));  // a stream with NCCL's kernel: a host wait has no bound
  }
}

// Waits until the bytes of all ranks have come, or the deadline has passed.
Status AwaitGather(const Driver& driver, SmallGather& gather, const Communicator& communicator, const CallSite& site,
                   uint64_t deadline_ms, Moment deadline) {
  const bool returned = HasReturned(gather.call, communicator, deadline);
  COMMPOOL_TRY(communicator.CheckNoneLost(site.call));
  if (!returned) return Missing(communicator, site, deadline_ms);
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  Status status = AwaitCommunicator(driver, communicator, gather.call.get(), "ncclAllGather", gather.memory.bytes(),
                                    static_cast<uint64_t>(std::max<int64_t>(left.count(), 0)));
  if (status.ok()) return AwaitStream(driver, gather.stream.get(), communicator, site, deadline_ms, deadline);
  if (StateOf(driver, communicator.handle) == ncclInProgress) gather.busy = communicator.handle;
  return status.code() == StatusCode::kDeadlineExceeded ? Missing(communicator, site, deadline_ms) : status;
}

void Abandon(SmallGather& gather) {
  gather.stream.Abandon();
  gather.memory.Abandon();
}

// Whether NCCL's call has returned and its work has passed. Where the context is lost nobody can know: then the gather
// gives nothing back.
bool IsOver(SmallGather& gather) {
  const bool returned =
      !gather.call.valid() || gather.call.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  if (!returned || gather.busy != nullptr) return false;
  const Driver& driver = gather.memory.driver();
  const RelaxedCapture relaxed(driver);  // the query breaks no capture of another thread
  const CUresult result = driver.cuda.cuStreamQuery(gather.stream.get());
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) Abandon(gather);
  return result != CUDA_ERROR_NOT_READY;
}

}  // namespace

Result<GatherMemory> GatherMemory::Make(const Driver& driver, uint64_t bytes) {
  CUdeviceptr memory = 0;
  const CUresult result = driver.cuda.cuMemAlloc(&memory, bytes);
  return Made(driver, result, {memory, bytes}, {.call = "cuMemAlloc", .bytes = bytes, .purpose = "address exchange"});
}

UnansweredGathers::~UnansweredGathers() {
  for (SmallGather& gather : gathers_) Abandon(gather);
}

void UnansweredGathers::Keep(SmallGather gather) {
  MutexLock lock(mutex_);
  gathers_.push_back(std::move(gather));
}

void UnansweredGathers::NoteIdle(ncclComm_t communicator) {
  MutexLock lock(mutex_);
  for (SmallGather& gather : gathers_) {
    if (gather.busy == communicator) gather.busy = nullptr;
  }
}

void UnansweredGathers::Release() {
  std::list<SmallGather> kept;
  {
    MutexLock lock(mutex_);
    kept.swap(gathers_);
  }
  for (auto gather = kept.begin(); gather != kept.end();) {
    const ContextGuard current(gather->memory.driver(), gather->context);
    gather = IsOver(*gather) ? kept.erase(gather) : std::next(gather);
  }
  MutexLock lock(mutex_);
  gathers_.splice(gathers_.end(), kept);
}

Result<std::vector<std::string>> GatherOver(const Driver& driver, const Communicator& communicator,
                                            const std::string& mine, const CallSite& site, uint64_t deadline_ms,
                                            UnansweredGathers& unanswered) {
  COMMPOOL_CHECK(mine.size() % sizeof(int32_t) == 0, "a gather of half a word");
  unanswered.NoteIdle(communicator.handle);  // DescribeCommunicator has waited until it was idle
  const Moment deadline = Clock::now() + std::chrono::milliseconds(deadline_ms);
  const uint64_t all_bytes = mine.size() * static_cast<uint64_t>(communicator.ranks);
  SmallGather gather;
  driver.cuda.cuCtxGetCurrent(&gather.context);
  gather.memory = COMMPOOL_TRY(GatherMemory::Make(driver, mine.size() + all_bytes));
  gather.stream = COMMPOOL_TRY(CopyStream::Make(driver));
  const CUdeviceptr received = gather.memory.value().object;
  const CUdeviceptr sent = received + all_bytes;
  COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuMemcpyHtoDAsync(sent, mine.data(), mine.size(), gather.stream.get()),
                         {.call = "cuMemcpyHtoDAsync", .device = communicator.device, .bytes = mine.size()}));

  // The other ranks are on their way into the call, which may block on the host: ranks connect at a communicator's
  // first collective.
  const auto all_gather = [all_gather = driver.nccl.ncclAllGather, handle = communicator.handle, sent, received,
                           words = mine.size() / sizeof(int32_t), stream = gather.stream.get()] {
    return all_gather(reinterpret_cast<const void*>(sent), reinterpret_cast<void*>(received), words, ncclInt32, handle,
                      stream);
  };
  gather.call = CallSeparately(driver, all_gather);
  Status status = AwaitGather(driver, gather, communicator, site, deadline_ms, deadline);
  if (!status.ok()) {
    unanswered.Keep(std::move(gather));
    return status;
  }

  std::string all(all_bytes, '\0');
  // Not through the legacy stream, whose use breaks a capture of a blocking stream.
  COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuMemcpyDtoHAsync(all.data(), received, all_bytes, gather.stream.get()),
                         {.call = "cuMemcpyDtoHAsync", .device = communicator.device, .bytes = all_bytes}));
  COMMPOOL_TRY(gather.stream.Await());
  std::vector<std::string> parts;
  for (uint64_t offset = 0; offset < all_bytes; offset += mine.size()) parts.push_back(all.substr(offset, mine.size()));
  return parts;
}

}  // namespace commpool::internal
