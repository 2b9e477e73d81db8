#include "src/registration/unanswered_gathers.h"

#include <chrono>
#include <utility>

#include "src/base/try.h"
#include "src/driver/diagnosis.h"
#include "src/driver/graph_handles.h"

namespace commpool::internal {

CUresult GatherScratch::ReleaseValue(const CudaDriver& cuda, const GatherResources& scratch) {
  const CUresult destroyed = scratch.stream == nullptr ? CUDA_SUCCESS : cuda.cuStreamDestroy(scratch.stream);
  const CUresult freed = cuda.cuMemFree(scratch.memory);
  return destroyed == CUDA_SUCCESS ? freed : destroyed;
}

Result<GatherScratch> GatherScratch::Make(const Driver& driver, uint64_t bytes) {
  CUcontext context = nullptr;
  driver.cuda.cuCtxGetCurrent(&context);
  CUdeviceptr memory = 0;
  COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuMemAlloc(&memory, bytes),
                         {.call = "cuMemAlloc", .bytes = bytes, .purpose = "address exchange"}));
  GatherScratch without_stream(driver, {context, memory, nullptr, bytes});
  CUstream stream = nullptr;
  COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING),
                         {.call = "cuStreamCreate", .purpose = "address exchange"}));
  without_stream.Abandon();
  return GatherScratch(driver, {context, memory, stream, bytes});
}

bool GatherScratch::IsIdle() {
  const RelaxedCapture relaxed(driver());  // the query breaks no capture of another thread
  const CUresult result = driver().cuda.cuStreamQuery(stream());
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) Abandon();
  return result != CUDA_ERROR_NOT_READY;
}

UnansweredGathers::~UnansweredGathers() {
  for (SmallGather& gather : gathers_) gather.scratch.Abandon();
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

bool UnansweredGathers::IsOver(SmallGather& gather) {
  const bool returned =
      !gather.call.valid() || gather.call.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  return returned && gather.busy == nullptr && gather.scratch.IsIdle();
}

void UnansweredGathers::Release() {
  Gathers kept;
  {
    MutexLock lock(mutex_);
    kept.swap(gathers_);
  }
  for (auto gather = kept.begin(); gather != kept.end();) {
    const ContextGuard current(gather->scratch.driver(), gather->scratch.context());
    gather = IsOver(*gather) ? kept.erase(gather) : std::next(gather);
  }
  MutexLock lock(mutex_);
  gathers_.splice(gathers_.end(), kept);
}

}  // namespace commpool::internal
