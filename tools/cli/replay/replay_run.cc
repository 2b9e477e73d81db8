#include "tools/cli/replay/replay_run.h"

#include <algorithm>
#include <utility>

#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"
#include "tools/cli/replay/clock_overhead.h"
#include "tools/cli/replay/trace_player.h"
#include "tools/cli/replay/trace_work.h"

namespace commpool::cli {

namespace {

class Replayer final : public TracePlayer {
 public:
  Replayer(SoloDevice& device, const Trace& trace, ReplayedAllocator& allocator, std::unique_ptr<TraceWork> work)
      : TracePlayer(device, trace, allocator, std::move(work), 0),
        device_(device),
        trace_(trace),
        allocator_(allocator) {}

  Result<ReplayMeasures> Run() {
    const uint64_t before = COMMPOOL_TRY(device_.MemoryInUse());
    in_use_before_ = in_use_peak_ = before;
    const DriverCallsByName calls_before = allocator_.Calls();
    COMMPOOL_TRY(allocator_.Prepare(trace_.peak_requested_bytes));
    COMMPOOL_TRY(NoteGrowth());
    allocator_.CalledDriver(UINT64_MAX);  // calls before the first event do not count
    const size_t half = trace_.events.size() / 2;
    COMMPOOL_TRY(Play(0, half));
    const DriverCallsByName calls_at_half = allocator_.Calls();
    const uint64_t waits_at_half = allocator_.costs().waits;
    COMMPOOL_TRY(Play(half, trace_.events.size()));
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

  // Reads the driver's count only after driver calls, which alone change it.
  Status Note(int64_t ns) override {
    const bool slow = allocator_.CalledDriver(static_cast<uint64_t>(ns));
    Timed& timed = slow ? slow_ : quiet_;
    for (Timed* one : {&timed, ns < kLongNs ? &short_ : &long_}) {
      one->ns += ns;
      ++one->events;
    }
    return slow ? NoteGrowth() : Status();
  }

  Status NoteGrowth() override {
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
  std::unique_ptr<TraceWork> work = COMMPOOL_TRY(TracePlayer::MakeWork(device, trace, 0));
  COMMPOOL_TRY(WarmUp(device, *work, trace.streams));
  return Replayer(device, trace, allocator, std::move(work)).Run();
}

Result<ReplayMeasures> ReplayInPool(SoloDevice& device, const Trace& trace, const PoolChoice& choice) {
  std::unique_ptr<PoolAllocator> allocator = COMMPOOL_TRY(PoolAllocator::Create(device, choice));
  Result<ReplayMeasures> measures = Replay(device, trace, *allocator);
  Status closed = allocator->Close();
  if (measures.ok() && !closed.ok()) return closed;
  return measures;
}

}  // namespace commpool::cli
