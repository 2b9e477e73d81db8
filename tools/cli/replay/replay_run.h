// One replay of a trace: one event at a time. Work uses each block until the next event on its stream.
#pragma once

#include "tools/cli/replay/allocator.h"
#include "tools/cli/replay/pool_allocator.h"
#include "tools/cli/solo_device.h"
#include "tools/traces/trace.h"

namespace commpool::cli {

struct ReplayMeasures {
  uint64_t peak_reserved_bytes = 0;  // by the driver's count
  double ns_per_event = 0;           // the allocator's time without the driver's
  double slow_us = 0;                // wall time of the calls that called the driver
  // Wall times, which mean the same for every allocator: of an event, of an event whose call took less than 20 us, and
  // of all longer calls. They mean nothing on the emulator.
  double wall_ns_per_event = 0;
  double short_ns_per_event = 0;
  double long_us = 0;
  DriverCallsByName calls;
  DriverCallsByName calls_in_second_half;
  ReplayedAllocator::Costs costs;
  uint64_t waits_in_second_half = 0;
};

// Blocks that live at the trace's end are freed after the measures are taken.
Result<ReplayMeasures> Replay(SoloDevice& device, const Trace& trace, ReplayedAllocator& allocator);

// The same in a new pool.
Result<ReplayMeasures> ReplayInPool(SoloDevice& device, const Trace& trace, const PoolChoice& choice);

// The smallest limit of device memory, in steps of 2 MiB, with which the trace completes in a pool. Found by bisection
// between the peak requested and twice `enough_bytes`, which should be enough. kOutOfMemory where no limit is.
Result<uint64_t> FindSmallestDevice(SoloDevice& device, const Trace& trace, const PoolChoice& choice,
                                    uint64_t enough_bytes);

}  // namespace commpool::cli
