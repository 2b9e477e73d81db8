#include "tools/cli/replay/replay_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"
#include "tools/cli/replay/clock_overhead.h"
#include "tools/cli/replay/rescue.h"
#include "tools/cli/replay/trace_work.h"

namespace commpool::cli {

namespace {

using Clock = std::chrono::steady_clock;

class Replayer {
 public:
  Replayer(SoloDevice& device, const Trace& trace, ReplayedAllocator& allocator, TraceWork& work)
      : device_(device),
        trace_(trace),
        allocator_(allocator),
        work_(work),
        rescue_(work),
        blocks_(trace.blocks, nullptr) {}

  ~Replayer() {
    for (size_t stream = 0; stream < trace_.streams; ++stream) static_cast<void>(work_.Release(stream));
    for (void* block : blocks_) {
      if (block != nullptr) allocator_.Free(block);
    }
  }

  Result<ReplayMeasures> Run() {
    const uint64_t before = COMMPOOL_TRY(device_.MemoryInUse());
    in_use_before_ = in_use_peak_ = before;
    const DriverCallsByName calls_before = allocator_.Calls();
    Status status = allocator_.Prepare(trace_.peak_requested_bytes);
    if (status.ok()) status = NoteMemory();
    if (!status.ok()) return status;
    allocator_.CalledDriver(UINT64_MAX);  // calls before the first event do not count
    DriverCallsByName calls_at_half = calls_before;
    uint64_t waits_at_half = 0;
    const size_t half = trace_.events.size() / 2;
    for (size_t index = 0; index < trace_.events.size(); ++index) {
      if (index == half) {
        calls_at_half = allocator_.Calls();
        waits_at_half = allocator_.costs().waits;
      }
      status = Step(trace_.events[index]);
      if (!status.ok()) {
        return Status(status.code(), "event " + std::to_string(index + 1) + " of " +
                                         std::to_string(trace_.events.size()) + " in " + trace_.name + ": " +
                                         status.message());
      }
    }
    const DriverCallsByName calls_after = allocator_.Calls();
    ReplayMeasures measures;
    measures.peak_reserved_bytes = in_use_peak_ - in_use_before_;
    measures.calls = Difference(calls_after, calls_before);
    measures.calls_in_second_half = Difference(calls_after, calls_at_half);
    measures.costs = allocator_.costs();
    measures.waits_in_second_half = measures.costs.waits - waits_at_half;
    measures.slow_us = static_cast<double>(slow_.ns) / 1000;
    measures.ns_per_event = TimePerEvent(Sum(measures.calls).microseconds);
    measures.wall_ns_per_event = Share(short_.ns + long_.ns, short_.events + long_.events);
    measures.short_ns_per_event = Share(short_.ns, short_.events);
    measures.long_us = static_cast<double>(long_.ns) / 1000;
    return measures;
  }

 private:
  struct Timed {
    int64_t ns = 0;
    int64_t events = 0;
  };

  Status Step(const TraceEvent& event) {
    COMMPOOL_TRY(work_.Release(event.stream));
    return event.allocates() ? Allocate(event) : Free(event);
  }

  Status Allocate(const TraceEvent& event) {
    const CUstream stream = device_.streams()[event.stream];
    void* block = nullptr;
    while (true) {
      rescue_.Enter();
      const Clock::time_point start = Clock::now();
      block = allocator_.Allocate(event.bytes, stream);
      const Clock::time_point end = Clock::now();
      rescue_.Leave();
      Status status = Note(Nanoseconds(start, end));
      if (block != nullptr && !status.ok()) allocator_.Free(block);
      if (!status.ok()) return status;
      if (block != nullptr) break;
      status = allocator_.MakeRoom(event.bytes);
      if (status.ok()) status = NoteMemory();
      if (!status.ok()) return status;
    }
    blocks_[event.block] = block;
    const auto address = reinterpret_cast<CUdeviceptr>(block);
    if (event.also_on == TraceEvent::kNoStream) return work_.Hold(event.stream, address, event.bytes);
    return Share(event, address);
  }

  // Two streams write one half each. The second half comes after the allocation.
  Status Share(const TraceEvent& event, CUdeviceptr address) {
    Status status = work_.Release(event.also_on);
    if (status.ok()) status = Order(event.stream, event.also_on);
    if (status.ok()) status = work_.Hold(event.stream, address, event.bytes / 2);
    if (status.ok()) status = work_.Hold(event.also_on, address + event.bytes / 2, event.bytes - event.bytes / 2);
    if (!status.ok()) return status;
    const Clock::time_point start = Clock::now();
    const bool recorded = allocator_.RecordStream(blocks_[event.block], device_.streams()[event.also_on]);
    status = Note(Nanoseconds(start, Clock::now()));
    return recorded ? status : allocator_.failure();
  }

  Status Order(size_t first, size_t second) {
    const internal::CudaDriver& cuda = device_.driver().cuda;
    CUevent event = nullptr;
    CUresult result = cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = cuda.cuEventRecord(event, device_.streams()[first]);
    if (result == CUDA_SUCCESS) result = cuda.cuStreamWaitEvent(device_.streams()[second], event, 0);
    if (event != nullptr) cuda.cuEventDestroy(event);
    return internal::CheckCuda(device_.driver(), result,
                               {.call = "cuStreamWaitEvent", .purpose = "a block for two streams"});
  }

  Status Free(const TraceEvent& event) {
    void* const block = std::exchange(blocks_[event.block], nullptr);
    const Clock::time_point start = Clock::now();
    const bool freed = allocator_.Free(block);
    Status status = Note(Nanoseconds(start, Clock::now()));
    return freed ? status : allocator_.failure();
  }

  // Reads the driver's count only after driver calls, which alone change it.
  Status Note(int64_t ns) {
    ns = std::max<int64_t>(ns - clock_overhead_, 0);
    const bool slow = allocator_.CalledDriver(static_cast<uint64_t>(ns));
    Timed& timed = slow ? slow_ : quiet_;
    for (Timed* one : {&timed, ns < kLongNs ? &short_ : &long_}) {
      one->ns += ns;
      ++one->events;
    }
    return slow ? NoteMemory() : Status();
  }

  Status NoteMemory() {
    Result<uint64_t> in_use = device_.MemoryInUse();
    if (in_use.ok()) in_use_peak_ = std::max(in_use_peak_, *in_use);
    return in_use.status();
  }

  // Leaves out events that called the emulator, whose real time is not a driver's.
  double TimePerEvent(double driver_us) const {
    if (device_.emulated()) return Share(quiet_.ns, quiet_.events);
    const auto driver_ns = static_cast<int64_t>(driver_us * 1000);
    return Share(std::max<int64_t>(quiet_.ns + slow_.ns - driver_ns, 0), quiet_.events + slow_.events);
  }
  static double Share(int64_t ns, int64_t events) {
    return events == 0 ? 0 : static_cast<double>(ns) / static_cast<double>(events);
  }

  SoloDevice& device_;
  const Trace& trace_;
  ReplayedAllocator& allocator_;
  TraceWork& work_;
  Rescue rescue_;
  std::vector<void*> blocks_;  // the live ones
  const int64_t clock_overhead_ = ClockOverhead();
  uint64_t in_use_before_ = 0;
  uint64_t in_use_peak_ = 0;
  Timed quiet_;  // calls without the driver
  Timed slow_;
  Timed short_;  // the same by their wall time
  Timed long_;
};

// The first work of a kind may make the driver take memory that is not the pool's.
Status WarmUp(SoloDevice& device, TraceWork& work, size_t streams) {
  const internal::Driver& driver = device.driver();
  CUdeviceptr memory = 0;
  constexpr size_t kBytes = 4096;
  Status status =
      internal::CheckCuda(driver, driver.cuda.cuMemAlloc(&memory, kBytes), {.call = "cuMemAlloc", .bytes = kBytes});
  for (size_t stream = 0; stream < streams && status.ok(); ++stream) {
    status = work.Hold(stream, memory, kBytes);
    if (status.ok()) status = work.Release(stream);
    driver.cuda.cuCtxSynchronize();  // the next stream writes the same block
  }
  if (memory != 0) driver.cuda.cuMemFree(memory);
  return status;
}

}  // namespace

Result<ReplayMeasures> Replay(SoloDevice& device, const Trace& trace, ReplayedAllocator& allocator) {
  COMMPOOL_TRY(device.NeedStreams(trace.streams));
  const std::vector<CUstream> streams(device.streams().begin(), device.streams().begin() + trace.streams);
  std::unique_ptr<TraceWork> work = COMMPOOL_TRY(MakeTraceWork(device.driver(), streams));
  COMMPOOL_TRY(WarmUp(device, *work, trace.streams));
  return Replayer(device, trace, allocator, *work).Run();
}

Result<ReplayMeasures> ReplayInPool(SoloDevice& device, const Trace& trace, const PoolChoice& choice) {
  std::unique_ptr<PoolAllocator> allocator = COMMPOOL_TRY(PoolAllocator::Create(device, choice));
  Result<ReplayMeasures> measures = Replay(device, trace, *allocator);
  Status closed = allocator->Close();
  if (measures.ok() && !closed.ok()) return closed;
  return measures;
}

}  // namespace commpool::cli
