#include "src/library/stream/fence_table.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "src/library/base/failure.h"
#include "src/library/base/interruption.h"
#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"
#include "src/library/driver/graph_handles.h"

namespace commpool::internal {

// Each event ends in its own context. Nobody calls the driver for one that is lost (rule 9).
FenceTable::~FenceTable() {
  MutexLock lock(mutex_);
  for (auto& [fence, recorded] : recorded_) spare_[PlaceOf(fence)].push_back(std::move(recorded.event));
  for (auto& [place, events] : spare_) {
    if (places_.At(place).health.broken()) {
      for (const SharedEvent& event : events) event->Abandon();
      continue;
    }
    const ContextGuard current = MakeCurrent(place);
    events.clear();
  }
}

Result<FenceTable::SharedEvent> FenceTable::TakeSpareEvent(int place) {
  {
    MutexLock lock(mutex_);
    std::vector<SharedEvent>& spare = spare_[place];
    if (!spare.empty()) {
      SharedEvent event = std::move(spare.back());
      spare.pop_back();
      return event;
    }
  }
  Event event = COMMPOOL_TRY(Event::Create(driver_));
  return std::make_shared<Event>(std::move(event));
}

FenceTable::Recorded FenceTable::RecordOf(FenceId fence) const {
  MutexLock lock(mutex_);
  const auto found = recorded_.find(fence);
  return found == recorded_.end() ? Recorded() : found->second;
}

// The driver takes what the legacy stream is given then for part of the capture, and breaks it.
Status FenceTable::CheckUsable(StreamKey stream) {
  Place& place = places_.At(PlaceOf(stream));
  if (!IsLegacy(stream) || !COMMPOOL_TRY(place.IsCapturing(driver_, StreamOfKey(stream)))) return Status();
  return FailedPrecondition(
      "a blocking stream of device ", PlaceOf(stream), " is being captured, so the legacy default ",
      "stream there takes no work: capture on a stream that was made with CU_STREAM_NON_BLOCKING");
}

Result<FenceId> FenceTable::Record(StreamKey stream) {
  const int place = PlaceOf(stream);
  const ContextGuard current = MakeCurrent(place);
  COMMPOOL_TRY(CheckUsable(stream));
  SharedEvent event = COMMPOOL_TRY(TakeSpareEvent(place));
  const CUresult result = driver_.cuda.cuEventRecord(event->get(), StreamOfKey(stream));
  const Status status = Checked(result, {.call = "cuEventRecord", .purpose = "fence of a freed block"}, place);
  MutexLock lock(mutex_);
  if (!status.ok()) {
    spare_[place].push_back(std::move(event));
    return status;
  }
  const FenceId fence = AtPlace(place, next_++);
  recorded_.emplace(fence, Recorded{std::move(event), stream});
  return fence;
}

Status FenceTable::Checked(CUresult result, CallSite site, int place) {
  site.device = place;
  return places_.At(place).health.Check(driver_, result, site);
}

Status FenceTable::MakeWait(StreamKey waiter, FenceId fence) {
  // Another thread may retire the fence meanwhile, because it has passed. Its event may even be recorded again before
  // the call below. Then the wait is longer than needed, and still right.
  const Recorded recorded = RecordOf(fence);
  if (recorded.event == nullptr) return Status();
  const ContextGuard current = MakeCurrent(PlaceOf(waiter));
  COMMPOOL_TRY(CheckUsable(waiter));
  const CUresult result = driver_.cuda.cuStreamWaitEvent(StreamOfKey(waiter), recorded.event->get(), 0);
  const CallSite site{.call = "cuStreamWaitEvent", .purpose = "reuse of a block"};
  // Of two devices it does not say which one has failed.
  return PlaceOf(waiter) == PlaceOf(fence) ? Checked(result, site, PlaceOf(fence)) : CheckCuda(driver_, result, site);
}

Status FenceTable::MakeWaitForStream(StreamKey waiter, StreamKey stream) {
  if (waiter == stream) return Status();
  const FenceId fence = COMMPOOL_TRY(Record(stream));
  // The wait keeps the event's state of this moment, so others may record on the event at once.
  Status status = MakeWait(waiter, fence);
  Retire(fence);
  return status;
}

Result<bool> FenceTable::Passed(FenceId fence) {
  const RelaxedCapture relaxed(driver_);
  const ContextGuard current = MakeCurrent(PlaceOf(fence));
  return IsDone(RecordOf(fence));
}

// Asks again and again: a wait of the driver for an event has no limit.
Status FenceTable::Await(FenceId fence, uint64_t deadline_ms) {
  WaitSlices slices(std::chrono::steady_clock::now() + std::chrono::milliseconds(deadline_ms));
  for (;;) {
    const bool passed = COMMPOOL_TRY(Passed(fence));
    if (passed) return Status();
    if (slices.Over()) {
      return DeadlineExceeded("device ", PlaceOf(fence), " still uses the memory after ", deadline_ms,
                              " ms, nothing was released");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

Result<bool> FenceTable::IsIdle(StreamKey stream) {
  const RelaxedCapture relaxed(driver_);
  const ContextGuard current = MakeCurrent(PlaceOf(stream));
  const CUresult answer = driver_.cuda.cuStreamQuery(StreamOfKey(stream));
  if (answer == CUDA_ERROR_NOT_READY) return false;
  COMMPOOL_TRY(Checked(answer, {.call = "cuStreamQuery"}, PlaceOf(stream)));
  return true;
}

Result<bool> FenceTable::IsDone(const Recorded& recorded) {
  if (recorded.event == nullptr) return true;
  const CUresult answer = driver_.cuda.cuEventQuery(recorded.event->get());
  if (answer == CUDA_ERROR_NOT_READY) return false;
  COMMPOOL_TRY(Checked(answer, {.call = "cuEventQuery"}, PlaceOf(recorded.stream)));
  return true;
}

std::vector<FenceId> FenceTable::PassedOf(const std::vector<FenceId>& fences) {
  const RelaxedCapture relaxed(driver_);
  std::vector<FenceId> over;
  std::vector<StreamKey> at_work;
  std::optional<int> place;
  std::optional<ContextGuard> current;
  for (const FenceId fence : fences) {
    if (place != PlaceOf(fence)) {
      place = PlaceOf(fence);
      current.emplace(driver_, places_.At(*place).context);
    }
    const Recorded recorded = RecordOf(fence);
    if (std::find(at_work.begin(), at_work.end(), recorded.stream) != at_work.end()) continue;
    const Result<bool> passed = IsDone(recorded);
    if (passed.ok() && *passed) {
      over.push_back(fence);
    } else {
      at_work.push_back(recorded.stream);
    }
  }
  return over;
}

void FenceTable::Retire(FenceId fence) {
  MutexLock lock(mutex_);
  const auto found = recorded_.find(fence);
  if (found == recorded_.end()) return;  // two threads saw that it had passed
  spare_[PlaceOf(fence)].push_back(std::move(found->second.event));
  recorded_.erase(found);
}

}  // namespace commpool::internal
