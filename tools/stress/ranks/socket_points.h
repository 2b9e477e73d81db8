// The points of the protocol that are system calls: libc's functions as the library calls them in this program, which
// the linker leads through here (-Wl,--wrap). They forward, unless the process has an ambush or a planted fault.
#ifndef COMMPOOL_TOOLS_STRESS_RANKS_SOCKET_POINTS_H_
#define COMMPOOL_TOOLS_STRESS_RANKS_SOCKET_POINTS_H_

#include <chrono>

#include "tools/stress/ranks/plant.h"

namespace commpool::cli::stress_ranks {

// What the process does to its messages from now on. `wait` is that of kEndlessWait.
void PlantInSockets(Plant plant, std::chrono::milliseconds wait);

// The program's thread begins a call: what it sent before belongs to another.
void BeginCallOnSockets();

}  // namespace commpool::cli::stress_ranks

#endif  // COMMPOOL_TOOLS_STRESS_RANKS_SOCKET_POINTS_H_
