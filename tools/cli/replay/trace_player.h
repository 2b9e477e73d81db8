// Plays the events of a trace in an allocator. Work on the device uses each block until the next event on its stream.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "commpool/status.h"
#include "tools/cli/replay/allocator.h"
#include "tools/cli/replay/clock_overhead.h"
#include "tools/cli/replay/rescue.h"
#include "tools/cli/replay/trace_work.h"
#include "tools/cli/solo_device.h"
#include "tools/traces/trace.h"

namespace commpool::cli {

// One thread. What it was made with outlives it.
class TracePlayer {
 public:
  // Of the device's streams it alone uses as many as the trace has, from `first_stream` on.
  static Result<std::unique_ptr<TraceWork>> MakeWork(const SoloDevice& device, const Trace& trace, size_t first_stream);
  TracePlayer(const SoloDevice& device, const Trace& trace, ReplayedAllocator& allocator,
              std::unique_ptr<TraceWork> work, size_t first_stream);
  TracePlayer(const TracePlayer&) = delete;
  TracePlayer& operator=(const TracePlayer&) = delete;

  // The events from the first until before the last. Errors name the event.
  Status Play(size_t first, size_t last);
  // Lets its work end. An allocator may wait for the whole device, and work of another player would hold it up.
  Status Release();
  void FreeAll();

 protected:
  virtual ~TracePlayer() { FreeAll(); }

  // Hears how long each call of the allocator took.
  virtual Status Note(int64_t ns) = 0;
  // The allocator has grown outside of its timed calls.
  virtual Status NoteGrowth() { return Status(); }

 private:
  Status Step(const TraceEvent& event);
  Status Allocate(const TraceEvent& event);
  // Two streams write one half each. The second half comes after the allocation.
  Status Share(const TraceEvent& event, CUdeviceptr address);
  Status Order(size_t first, size_t second);
  Status Free(const TraceEvent& event);
  // Notes the time of the call, and returns what it returned.
  template <typename Call>
  auto Timed(Call&& call, Status& noted);

  CUstream Stream(size_t number) const { return device_.streams()[first_stream_ + number]; }

  const SoloDevice& device_;
  const Trace& trace_;
  ReplayedAllocator& allocator_;
  const std::unique_ptr<TraceWork> work_;
  const size_t first_stream_;
  Rescue rescue_{*work_};
  std::vector<void*> blocks_;  // the live ones
  const int64_t clock_overhead_ = ClockOverhead();
};

}  // namespace commpool::cli
