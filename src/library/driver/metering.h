// Counts and times the calls that go through a driver's table, for commpool_driver_calls. Any thread.
//
// A process has one meter, an exception to "no mutable globals": a function of a C ABI has no state of its own. On the
// emulator time is modelled and the whole process shares it, so the calls of other threads count too.
#pragma once

#include <cstdint>
#include <vector>

#include "commpool/status.h"
#include "src/library/driver/loader.h"

namespace commpool::internal {

// Replaces each CUDA function of the table by one that counts, times and calls it; NCCL's functions stay. Call it
// before other threads use the table. It does nothing to a metered table; kFailedPrecondition where the process meters
// another driver.
Status MeterDriver(Driver& driver);

// How often a function was called, and how long all its calls took.
struct MeteredFunction {
  const char* name;
  uint64_t calls = 0;
  double microseconds = 0;  // of all of them
};

// The functions that were called since the first MeterDriver, the one with the longest total time first. Calls in
// progress do not count.
std::vector<MeteredFunction> MeteredFunctions();

}  // namespace commpool::internal
