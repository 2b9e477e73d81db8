#include "src/stream/fence_table.h"

#include <utility>

namespace commpool {

Result<Event> FenceTable::TakeSpareEvent() {
  {
    MutexLock lock(mutex_);
    if (!spare_.empty()) {
      Event event = std::move(spare_.back());
      spare_.pop_back();
      return event;
    }
  }
  return Event::Create(driver_);
}

CUevent FenceTable::EventOf(FenceId fence) const {
  MutexLock lock(mutex_);
  const auto found = recorded_.find(fence);
  return found == recorded_.end() ? nullptr : found->second.get();
}

Result<FenceId> FenceTable::Record(StreamKey stream) {
  if (!IsReachable(stream)) {
    // Only its own thread can record on it: wait for its work on the host, and let any fence stand for it.
    Status status = SynchronizeDevice();
    if (!status.ok()) return status;
    stream = KeyOfStream(CU_STREAM_LEGACY);
  }
  Result<Event> event = TakeSpareEvent();
  if (!event.ok()) return event.status();
  Status status = health_.Check(driver_, driver_.cuda.cuEventRecord(event->get(), StreamOfKey(stream)),
                                {.call = "cuEventRecord", .device = device_, .purpose = "fence of a freed block"});
  MutexLock lock(mutex_);
  if (!status.ok()) {
    spare_.push_back(std::move(*event));
    return status;
  }
  const FenceId fence = next_++;
  recorded_.emplace(fence, std::move(*event));
  return fence;
}

Status FenceTable::MakeWait(StreamKey waiter, FenceId fence) {
  // Another thread may retire the fence meanwhile: then it has passed, and if its event is recorded again before the
  // call below the wait is longer than needed and still right.
  const CUevent event = EventOf(fence);
  if (event == nullptr) return Status();
  return health_.Check(driver_, driver_.cuda.cuStreamWaitEvent(StreamOfKey(waiter), event, 0),
                       {.call = "cuStreamWaitEvent", .device = device_, .purpose = "reuse of a block"});
}

Status FenceTable::MakeWaitForStream(StreamKey waiter, StreamKey stream) {
  if (waiter == stream) return Status();
  if (!IsReachable(waiter) || !IsReachable(stream)) return SynchronizeDevice();
  Result<FenceId> fence = Record(stream);
  if (!fence.ok()) return fence.status();
  // The wait keeps the state of the event at the call, so the event is free for others at once.
  Status status = MakeWait(waiter, *fence);
  Retire(*fence);
  return status;
}

Result<bool> FenceTable::Passed(FenceId fence) {
  const CUevent event = EventOf(fence);
  if (event == nullptr) return true;
  const CUresult result = driver_.cuda.cuEventQuery(event);
  if (result == CUDA_ERROR_NOT_READY) return false;
  Status status = health_.Check(driver_, result, {.call = "cuEventQuery", .device = device_});
  if (!status.ok()) return status;
  return true;
}

void FenceTable::Retire(FenceId fence) {
  MutexLock lock(mutex_);
  const auto found = recorded_.find(fence);
  if (found == recorded_.end()) return;  // two threads saw it pass
  spare_.push_back(std::move(found->second));
  recorded_.erase(found);
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
  for (auto& [fence, event] : recorded_) event.Abandon();
  for (Event& event : spare_) event.Abandon();
}

}  // namespace commpool
