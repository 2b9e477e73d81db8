// How much a symmetric pool must reserve, in one call, for a program. Found with the pool's own engine, without a
// device.
#pragma once

#include <cstdint>

#include "tools/traces/trace.h"

namespace commpool::cli {

// A reservation that is enough for the trace, in steps of 2 MiB; found by bisection, from the peak requested upwards.
// The trace may run with less by luck: where blocks lie depends on how much room there is.
uint64_t FindLeastReservation(const Trace& trace);

}  // namespace commpool::cli
