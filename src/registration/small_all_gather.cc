#include "src/registration/small_all_gather.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "src/base/check.h"
#include "src/base/host_patience.h"
#include "src/base/try.h"
#include "src/driver/diagnosis.h"
#include "src/driver/handles.h"

namespace commpool::internal {

namespace {

using Clock = std::chrono::steady_clock;
using Moment = Clock::time_point;

// How often a wait for NCCL's call looks whether a rank is lost.
constexpr std::chrono::milliseconds kLook{10};

// Device memory and a stream for one gather.
struct ScratchTraits {
  struct Value {
    CUdeviceptr memory = 0;
    CUstream stream = nullptr;
  };
  static constexpr CallSite kRelease{.call = "cuStreamDestroy or cuMemFree", .purpose = "address exchange"};
  static CUresult Release(const CudaDriver& cuda, const Value& scratch) {
    const CUresult destroyed = scratch.stream == nullptr ? CUDA_SUCCESS : cuda.cuStreamDestroy(scratch.stream);
    const CUresult freed = cuda.cuMemFree(scratch.memory);
    return destroyed == CUDA_SUCCESS ? freed : destroyed;
  }
};

struct Scratch : Handle<ScratchTraits> {
  using Handle::Handle;
  CUdeviceptr address() const { return value().memory; }
  CUstream stream() const { return value().stream; }
};

Result<Scratch> MakeScratch(const Driver& driver, uint64_t bytes) {
  CUdeviceptr memory = 0;
  COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuMemAlloc(&memory, bytes),
                         {.call = "cuMemAlloc", .bytes = bytes, .purpose = "address exchange"}));
  Scratch without_stream(driver, {memory, nullptr});
  CUstream stream = nullptr;
  COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING),
                         {.call = "cuStreamCreate", .purpose = "address exchange"}));
  without_stream.Abandon();
  return Scratch(driver, {memory, stream});
}

Status Missing(const Communicator& communicator, const GatherPurpose& purpose, uint64_t deadline_ms) {
  return Status(StatusCode::kDeadlineExceeded, std::string(purpose.call) + ": waited " + std::to_string(deadline_ms) +
                                                   " ms for all of the " + std::to_string(communicator.ranks) +
                                                   " ranks of the communicator: " + purpose.likely_cause);
}

// NCCL's call. It may block on the host: ranks connect at a communicator's first collective.
ncclResult_t Launch(const Driver& driver, const Communicator& communicator, CUdeviceptr sent, CUdeviceptr received,
                    size_t words, CUstream stream, Moment deadline) {
  CUcontext context = nullptr;
  driver.cuda.cuCtxGetCurrent(&context);
  HearLastWords(driver);
  // The other ranks are on their way into the call.
  auto call = Insist([&] {
    return std::make_shared<std::packaged_task<ncclResult_t()>>(
        [set_current = driver.cuda.cuCtxSetCurrent, all_gather = driver.nccl.ncclAllGather,
         handle = communicator.handle, context, sent, received, words, stream] {
          if (set_current(context) != CUDA_SUCCESS) return ncclUnhandledCudaError;
          return all_gather(reinterpret_cast<const void*>(sent), reinterpret_cast<void*>(received), words, ncclInt32,
                            handle, stream);
        });
  });
  std::future<ncclResult_t> result = call->get_future();
  Insist([&] { std::thread([call] { (*call)(); }).detach(); });
  while (Clock::now() < deadline && !(communicator.lost != nullptr && communicator.lost->any())) {
    const Moment next_look = std::min(deadline, Clock::now() + kLook);
    if (result.wait_until(next_look) == std::future_status::ready) return result.get();
  }
  return ncclInProgress;
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
    if (Status none_lost = communicator.CheckNoneLost(purpose.call); !none_lost.ok()) return none_lost;
    if (Clock::now() > deadline) return Missing(communicator, purpose, deadline_ms);
    std::this_thread::sleep_for(
        std::chrono::microseconds(20));  // a stream with NCCL's kernel: a host wait has no bound
  }
}

}  // namespace

Result<std::vector<std::string>> GatherOver(const Driver& driver, const Communicator& communicator,
                                            const std::string& mine, const GatherPurpose& purpose,
                                            uint64_t deadline_ms) {
  COMMPOOL_CHECK(mine.size() % sizeof(int32_t) == 0, "a gather of half a word");
  const Moment deadline = Clock::now() + std::chrono::milliseconds(deadline_ms);
  const uint64_t all_bytes = mine.size() * static_cast<uint64_t>(communicator.ranks);
  Scratch scratch = COMMPOOL_TRY(MakeScratch(driver, mine.size() + all_bytes));
  const CUdeviceptr received = scratch.address();
  const CUdeviceptr sent = received + all_bytes;
  Status status = CheckCuda(driver, driver.cuda.cuMemcpyHtoDAsync(sent, mine.data(), mine.size(), scratch.stream()),
                            {.call = "cuMemcpyHtoDAsync", .device = communicator.device, .bytes = mine.size()});
  if (!status.ok()) return status;

  const ncclResult_t result =
      Launch(driver, communicator, sent, received, mine.size() / sizeof(int32_t), scratch.stream(), deadline);
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  status = communicator.CheckNoneLost(purpose.call);
  if (status.ok() && result == ncclInProgress && left.count() <= 0) {
    status = Missing(communicator, purpose, deadline_ms);
  } else if (status.ok()) {
    status = AwaitCommunicator(driver, communicator, result, "ncclAllGather", mine.size(),
                               static_cast<uint64_t>(left.count()));
    if (status.code() == StatusCode::kDeadlineExceeded) status = Missing(communicator, purpose, deadline_ms);
  }
  if (status.ok()) status = AwaitStream(driver, scratch.stream(), communicator, purpose, deadline_ms, deadline);
  if (!status.ok()) {
    scratch.Abandon();  // the gather may still be running
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
