// One replay of a trace: events one at a time, each block in use by work that lasts until its stream's next event.
#ifndef COMMPOOL_TOOLS_CLI_REPLAY_REPLAY_RUN_H_
#define COMMPOOL_TOOLS_CLI_REPLAY_REPLAY_RUN_H_

#include "tools/cli/replay/allocator.h"
#include "tools/cli/replay/pool_allocator.h"
#include "tools/cli/solo_device.h"
#include "tools/traces/trace.h"

namespace commpool::cli {

struct ReplayMeasures {
  uint64_t peak_reserved_bytes = 0;  // as the driver counted it
  double ns_per_event = 0;           // of the allocator, the driver's time left out
  double slow_us = 0;                // wall time of the calls in which the driver was called
  // Wall times, which say the same of every allocator: of an event, of one whose call took less than 20 us, and of all
  // calls that took longer. They mean nothing on the emulator.
  double wall_ns_per_event = 0;
  double short_ns_per_event = 0;
  double long_us = 0;
  DriverCallsByName calls;
  DriverCallsByName calls_in_second_half;
  ReplayedAllocator::Costs costs;
  uint64_t waits_in_second_half = 0;
};

// Live blocks are freed where the trace ends before their free, after the figures were taken.
Result<ReplayMeasures> Replay(SoloDevice& device, const Trace& trace, ReplayedAllocator& allocator);

// The same in a pool of its own.
Result<ReplayMeasures> ReplayInPool(SoloDevice& device, const Trace& trace, const PoolChoice& choice);

// The least limit of device memory, in steps of 2 MiB, at which the trace completes in a pool; found by bisection
// between the peak requested and twice `enough_bytes`, a limit that should do. kOutOfMemory where none does.
Result<uint64_t> FindSmallestDevice(SoloDevice& device, const Trace& trace, const PoolChoice& choice,
                                    uint64_t enough_bytes);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_REPLAY_REPLAY_RUN_H_
