#include "src/library/sharing/shared_records.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "src/library/base/try.h"
#include "src/library/driver/graph_handles.h"

namespace commpool::internal {

namespace {

// Whether an event's work is done. Never waits, and belongs to no capture.
Result<bool> IsDone(const Event& event) {
  const Driver& driver = event.driver();
  const RelaxedCapture relaxed(driver);
  const CUresult answer = driver.cuda.cuEventQuery(event.get());
  if (answer == CUDA_ERROR_NOT_READY) return false;
  COMMPOOL_TRY(CheckCuda(driver, answer, {.call = "cuEventQuery", .purpose = "the order of a shared block"}));
  return true;
}

// Whether an event is done that was recorded with this number or a later one.
Result<bool> HasPassed(const std::array<Event, 2>& events, const auto& numbers, uint64_t number) {
  for (size_t place = 0; place < events.size(); ++place) {
    // First the number: another process may record the event anew meanwhile, and then it stands for more.
    if (numbers[place] < number) continue;
    const bool done = COMMPOOL_TRY(IsDone(events[place]));
    if (done) return true;
  }
  return false;
}

}  // namespace

void Pauses::Pause() {
  constexpr std::chrono::microseconds kLongest(500);
  std::this_thread::sleep_for(next_);
  next_ = std::min(2 * next_, kLongest);
}

Result<SharedRecords> SharedRecords::Make(const Driver& driver) {
  SharedRecords records;
  for (Event& event : records.events_) {
    event = COMMPOOL_TRY(Event::CreateShared(driver));
    const CUipcEventHandle handle = COMMPOOL_TRY(event.Share());
    records.handles_.append(handle.reserved, sizeof(handle.reserved));
  }
  return records;
}

Result<uint64_t> SharedRecords::Record(CUstream stream) {
  const Driver& driver = events_[newest_].driver();
  const size_t other = 1 - newest_;
  const bool free = numbers_[other] == 0 || COMMPOOL_TRY(IsDone(events_[other]));
  const size_t place = free ? other : newest_;
  // Streams end their reads in any order; behind this wait the new record stands for all of them.
  if (numbers_[newest_] != 0) {
    COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuStreamWaitEvent(stream, events_[newest_].get(), 0),
                           {.call = "cuStreamWaitEvent", .purpose = "the order of a shared block"}));
  }
  COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuEventRecord(events_[place].get(), stream),
                         {.call = "cuEventRecord",
                          .purpose = "the order of a shared block",
                          .likely_cause = "the stream belongs to another device than the pool or its import"}));
  const uint64_t number = std::max(numbers_[0], numbers_[1]) + 1;
  numbers_[place] = number;
  newest_ = place;
  return number;
}

void SharedRecords::Publish(RecordNumbers& numbers) const {
  for (size_t place = 0; place < numbers.size(); ++place) {
    numbers[place].store(numbers_[place], std::memory_order_release);
  }
}

Result<bool> SharedRecords::Passed(uint64_t number) const { return HasPassed(events_, numbers_, number); }

Status OpenedRecords::Take(const std::string& handles) {
  if (handles.size() != kHandleBytes) return InvalidArgument("the other process sent no events");
  std::memcpy(handles_.data(), handles.data(), kHandleBytes);
  return Status();
}

// Two threads may open them at the same time; then the first one's count.
Status OpenedRecords::Open(const Driver& driver) {
  {
    const std::lock_guard lock(mutex_);
    if (events_) return Status();
  }
  std::array<Event, 2> opened;
  for (size_t place = 0; place < opened.size(); ++place) {
    Result<Event> event = Event::Open(driver, handles_[place]);
    const bool of_the_host = event.status().code() == StatusCode::kOutOfMemory;
    if (!event.ok()) return of_the_host ? event.status() : RemoteFailure(event.status().message());
    opened[place] = std::move(*event);
  }
  const std::lock_guard lock(mutex_);
  if (!events_) events_ = std::move(opened);
  return Status();
}

Result<bool> OpenedRecords::Passed(const Driver& driver, uint64_t number, const RecordNumbers& numbers) {
  if (number == 0) return true;
  COMMPOOL_TRY(Open(driver));
  return HasPassed(*events_, numbers, number);
}

}  // namespace commpool::internal
