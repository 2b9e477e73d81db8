// How much a symmetric pool has to reserve, in one call, for a program: found by the pool's own engine, without a
// device.
#ifndef COMMPOOL_TOOLS_CLI_REPLAY_LEAST_RESERVATION_H_
#define COMMPOOL_TOOLS_CLI_REPLAY_LEAST_RESERVATION_H_

#include <cstdint>

#include "tools/traces/trace.h"

namespace commpool::cli {

// A reservation with which the trace runs and needs no other, in steps of 2 MiB; found by bisection from the peak
// requested on. With less, the trace may still run by luck: where blocks lie depends on the room there is.
uint64_t FindLeastReservation(const Trace& trace);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_REPLAY_LEAST_RESERVATION_H_
