#include "src/stream/fence_table.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "src/base/try.h"
#include "src/driver/graph_handles.h"

namespace commpool::internal {

Result<FenceTable::SharedEvent> FenceTable::MakeEvent() const {
  Event event = COMMPOOL_TRY(Event::Create(driver_));
  return std::make_shared<Event>(std::move(event));
}

Result<FenceTable::SharedEvent> FenceTable::TakeSpareEvent() {
  {
    MutexLock lock(mutex_);
    if (!spare_.empty()) {
      SharedEvent event = std::move(spare_.back());
      spare_.pop_back();
      return event;
    }
  }
  return MakeEvent();
}

FenceTable::Recorded FenceTable::RecordOf(FenceId fence) const {
  MutexLock lock(mutex_);
  const auto found = recorded_.find(fence);
  return found == recorded_.end() ? Recorded() : found->second;
}

Result<FenceId> FenceTable::Record(StreamKey stream) {
  if (!IsReachable(stream)) {
    // Only the stream's own thread, or a call that passes the stream, can record on it. So wait for its work on the
    // host: after that any fence will do.
    COMMPOOL_TRY(SynchronizeDevice());
    stream = KeyOfStream(CU_STREAM_LEGACY);
  }
  SharedEvent event = COMMPOOL_TRY(TakeSpareEvent());
  const CUresult result = driver_.cuda.cuEventRecord(event->get(), StreamOfKey(stream));
  if (result == CUDA_SUCCESS) return Keep({std::move(event), stream});
  constexpr CallSite kSite = {.call = "cuEventRecord", .purpose = "fence of a freed block"};
  // Such a stream answers with what its own device has met. This device's event tells of this one.
  const Where where = IsSticky(result) ? WhereIs(stream) : Where::kHere;
  if (where == Where::kElsewhere) static_cast<void>(IsDone({event, stream}));
  {
    MutexLock lock(mutex_);
    spare_.push_back(std::move(event));
  }
  // The event and the stream are of different contexts. We do not ask for the stream's context each time: that costs
  // more.
  if (result == CUDA_ERROR_INVALID_HANDLE) return RecordOnAnotherDevice(stream);
  return Checked(result, kSite, where);
}

// Asked after failures alone, so each use of a stream pays nothing for it.
FenceTable::Where FenceTable::WhereIs(StreamKey stream) const {
  CUcontext own = nullptr;
  CUcontext context = nullptr;
  const bool answered = driver_.cuda.cuCtxGetCurrent(&own) == CUDA_SUCCESS &&
                        driver_.cuda.cuStreamGetCtx(StreamOfKey(stream), &context) == CUDA_SUCCESS;
  return answered && context == own ? Where::kHere : Where::kElsewhere;
}

Status FenceTable::Checked(CUresult result, CallSite site, Where device) {
  if (device == Where::kElsewhere) return CheckCuda(driver_, result, site);
  site.device = device_;
  return health_.Check(driver_, result, site);
}

Result<FenceId> FenceTable::RecordOnAnotherDevice(StreamKey stream) {
  // A failure here concerns the other device, not the health of this one.
  CUcontext context = nullptr;
  COMMPOOL_TRY(CheckCuda(driver_, driver_.cuda.cuStreamGetCtx(StreamOfKey(stream), &context),
                         {.call = "cuStreamGetCtx",
                          .purpose = "fence of a freed block",
                          .likely_cause = "the stream was destroyed without release_stream"}));
  ContextGuard guard(driver_, context);
  SharedEvent event = COMMPOOL_TRY(MakeEvent());
  COMMPOOL_TRY(CheckCuda(driver_, driver_.cuda.cuEventRecord(event->get(), StreamOfKey(stream)),
                         {.call = "cuEventRecord", .purpose = "fence of a block that another device used"}));
  return Keep({std::move(event), stream, Where::kElsewhere});
}

FenceId FenceTable::Keep(Recorded recorded) {
  MutexLock lock(mutex_);
  const FenceId fence = next_++;
  recorded_.emplace(fence, std::move(recorded));
  return fence;
}

Status FenceTable::MakeWait(StreamKey waiter, FenceId fence) {
  // Another thread may retire the fence meanwhile, because it has passed. Its event may even be recorded again before
  // the call below. Then the wait is longer than needed, and still right.
  const Recorded recorded = RecordOf(fence);
  if (recorded.event == nullptr) return Status();
  return Checked(driver_.cuda.cuStreamWaitEvent(StreamOfKey(waiter), recorded.event->get(), 0),
                 {.call = "cuStreamWaitEvent", .purpose = "reuse of a block"}, recorded.where);
}

Status FenceTable::MakeWaitForStream(StreamKey waiter, StreamKey stream) {
  if (waiter == stream) return Status();
  if (!IsReachable(waiter) || !IsReachable(stream)) return SynchronizeDevice();
  const FenceId fence = COMMPOOL_TRY(Record(stream));
  // The wait keeps the event's state of this moment, so others may record on the event at once.
  Status status = MakeWait(waiter, fence);
  Retire(fence);
  return status;
}

Result<bool> FenceTable::Passed(FenceId fence) {
  const RelaxedCapture relaxed(driver_);
  return IsDone(RecordOf(fence));
}

Result<bool> FenceTable::IsIdle(StreamKey stream) {
  const RelaxedCapture relaxed(driver_);
  const CUresult answer = driver_.cuda.cuStreamQuery(StreamOfKey(stream));
  if (answer == CUDA_ERROR_NOT_READY) return false;
  if (answer != CUDA_SUCCESS && WhereIs(stream) == Where::kElsewhere) return false;
  COMMPOOL_TRY(Checked(answer, {.call = "cuStreamQuery"}, Where::kHere));
  return true;
}

Result<bool> FenceTable::IsDone(const Recorded& recorded) {
  if (recorded.event == nullptr) return true;
  const CUresult answer = driver_.cuda.cuEventQuery(recorded.event->get());
  if (answer == CUDA_ERROR_NOT_READY) return false;
  COMMPOOL_TRY(Checked(answer, {.call = "cuEventQuery"}, recorded.where));
  return true;
}

std::vector<FenceId> FenceTable::PassedOf(const std::vector<FenceId>& fences) {
  const RelaxedCapture relaxed(driver_);
  std::vector<FenceId> over;
  std::vector<StreamKey> at_work;
  for (const FenceId fence : fences) {
    const Recorded recorded = RecordOf(fence);
    if (std::find(at_work.begin(), at_work.end(), recorded.stream) != at_work.end()) continue;
    const Result<bool> passed = IsDone(recorded);
    if (!passed.ok() && recorded.where == Where::kHere) return over;
    if (passed.ok() && *passed) {
      over.push_back(fence);
    } else {
      at_work.push_back(recorded.stream);
    }
  }
  return over;
}

void FenceTable::Retire(FenceId fence) {
  Recorded retired;  // destroyed after the lock, if nobody else shares the event
  MutexLock lock(mutex_);
  const auto found = recorded_.find(fence);
  if (found == recorded_.end()) return;  // two threads saw that it had passed
  retired = std::move(found->second);
  recorded_.erase(found);
  if (retired.where == Where::kHere) spare_.push_back(std::move(retired.event));
}

Status FenceTable::SynchronizeDevice() {
  return health_.Check(driver_, driver_.cuda.cuCtxSynchronize(), {.call = "cuCtxSynchronize", .device = device_});
}

void FenceTable::Clear() {
  MutexLock lock(mutex_);
  recorded_.clear();
  spare_.clear();
}

void FenceTable::Abandon() {
  MutexLock lock(mutex_);
  for (auto& [fence, recorded] : recorded_) recorded.event->Abandon();
  for (const SharedEvent& event : spare_) event->Abandon();
}

}  // namespace commpool::internal
