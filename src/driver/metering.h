// Counts and times the calls that go through a driver's table: what commpool_measure_driver asks for. Any thread.
//
// One meter a process, the one exception to "no mutable globals": a function of a C ABI carries no state of its own.
// On the emulator the time is the modelled one, which the whole process shares: what other threads' calls cost
// meanwhile counts as well.
#ifndef COMMPOOL_SRC_DRIVER_METERING_H_
#define COMMPOOL_SRC_DRIVER_METERING_H_

#include <cstdint>
#include <vector>

#include "commpool/status.h"
#include "src/driver/loader.h"

namespace commpool::internal {

// Replaces the CUDA functions of the table by ones that count, time and call the former; NCCL's stay as they are. Comes
// before other threads call through the table. A metered table stays as it is; kFailedPrecondition where the process
// meters another driver.
Status MeterDriver(Driver& driver);

struct MeteredFunction {
  const char* name;
  uint64_t calls = 0;
  double microseconds = 0;  // of all of them
};

// The functions that were called since the first MeterDriver, the dearest first. Calls in progress are not in it.
std::vector<MeteredFunction> MeteredFunctions();

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_DRIVER_METERING_H_
