// How much a symmetric pool must reserve, in one call, for a program. Found with the pool's own engine, without a
// device.
#ifndef COMMPOOL_TOOLS_CLI_REPLAY_LEAST_RESERVATION_H_
#define COMMPOOL_TOOLS_CLI_REPLAY_LEAST_RESERVATION_H_

#include <cstdint>

#include "tools/traces/trace.h"

namespace commpool::cli {

// A reservation that is enough for the trace, in steps of 2 MiB; found by bisection, from the peak requested upwards.
// The trace may run with less by luck: where blocks lie depends on how much room there is.
uint64_t FindLeastReservation(const Trace& trace);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_REPLAY_LEAST_RESERVATION_H_
