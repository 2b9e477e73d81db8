#include "tools/cli/replay/trace_player.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"

namespace commpool::cli {

TracePlayer::TracePlayer(const SoloDevice& device, const Trace& trace, ReplayedAllocator& allocator,
                         std::unique_ptr<TraceWork> work, size_t first_stream)
    : device_(device),
      trace_(trace),
      allocator_(allocator),
      work_(std::move(work)),
      first_stream_(first_stream),
      blocks_(trace.blocks, nullptr) {}

Result<std::unique_ptr<TraceWork>> TracePlayer::MakeWork(const SoloDevice& device, const Trace& trace,
                                                         size_t first_stream) {
  const auto first = device.streams().begin() + static_cast<ptrdiff_t>(first_stream);
  return MakeTraceWork(device.driver(), std::vector<CUstream>(first, first + trace.streams));
}

Status TracePlayer::Play(size_t first, size_t last) {
  for (size_t index = first; index < last; ++index) {
    Status status = Step(trace_.events[index]);
    if (!status.ok()) {
      return status.under("event " + std::to_string(index + 1) + " of " + std::to_string(trace_.events.size()) +
                          " in " + trace_.name);
    }
  }
  return Status();
}

Status TracePlayer::Release() {
  for (size_t stream = 0; stream < trace_.streams; ++stream) COMMPOOL_TRY(work_->Release(stream));
  return Status();
}

void TracePlayer::FreeAll() {
  static_cast<void>(Release());
  for (void*& block : blocks_) {
    if (block != nullptr) allocator_.Free(std::exchange(block, nullptr));
  }
}

template <typename Call>
auto TracePlayer::Timed(Call&& call, Status& noted) {
  rescue_.Enter();
  const auto start = std::chrono::steady_clock::now();
  const auto result = call();
  const auto end = std::chrono::steady_clock::now();
  rescue_.Leave();
  noted = Note(std::max<int64_t>(Nanoseconds(start, end) - clock_overhead_, 0));
  return result;
}

Status TracePlayer::Step(const TraceEvent& event) {
  COMMPOOL_TRY(work_->Release(event.stream));
  return event.allocates() ? Allocate(event) : Free(event);
}

Status TracePlayer::Allocate(const TraceEvent& event) {
  void* block = nullptr;
  while (true) {
    Status noted;
    block = Timed([&] { return allocator_.Allocate(event.bytes, Stream(event.stream)); }, noted);
    if (block != nullptr) blocks_[event.block] = block;
    COMMPOOL_TRY(std::move(noted));
    if (block != nullptr) break;
    COMMPOOL_TRY(allocator_.MakeRoom(event.bytes));
    COMMPOOL_TRY(NoteGrowth());
  }
  const auto address = reinterpret_cast<CUdeviceptr>(block);
  if (event.also_on == TraceEvent::kNoStream) return work_->Hold(event.stream, address, event.bytes);
  return Share(event, address);
}

Status TracePlayer::Share(const TraceEvent& event, CUdeviceptr address) {
  COMMPOOL_TRY(work_->Release(event.also_on));
  COMMPOOL_TRY(Order(event.stream, event.also_on));
  COMMPOOL_TRY(work_->Hold(event.stream, address, event.bytes / 2));
  COMMPOOL_TRY(work_->Hold(event.also_on, address + event.bytes / 2, event.bytes - event.bytes / 2));
  Status noted;
  const bool recorded =
      Timed([&] { return allocator_.RecordStream(blocks_[event.block], Stream(event.also_on)); }, noted);
  return recorded ? noted : allocator_.failure();
}

Status TracePlayer::Order(size_t first, size_t second) {
  const internal::CudaDriver& cuda = device_.driver().cuda;
  CUevent event = nullptr;
  CUresult result = cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  if (result == CUDA_SUCCESS) result = cuda.cuEventRecord(event, Stream(first));
  if (result == CUDA_SUCCESS) result = cuda.cuStreamWaitEvent(Stream(second), event, 0);
  if (event != nullptr) cuda.cuEventDestroy(event);
  return internal::CheckCuda(device_.driver(), result,
                             {.call = "cuStreamWaitEvent", .purpose = "a block for two streams"});
}

Status TracePlayer::Free(const TraceEvent& event) {
  void* const block = std::exchange(blocks_[event.block], nullptr);
  Status noted;
  const bool freed = Timed([&] { return allocator_.Free(block); }, noted);
  return freed ? noted : allocator_.failure();
}

}  // namespace commpool::cli
