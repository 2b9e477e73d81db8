// The points of the protocol that are system calls. In this program the linker leads the library's calls of libc
// through here (-Wl,--wrap). They forward, unless the process has a fault.
#pragma once

#include <chrono>

#include "tools/stress/ranks/plant.h"

namespace commpool::cli::stress_ranks {

// What the process does to its messages from now on. `wait` belongs to kEndlessWait.
void PlantInSockets(Plant plant, std::chrono::milliseconds wait);

// The program's thread begins a call, so earlier messages belong to another call.
void BeginCallOnSockets();

}  // namespace commpool::cli::stress_ranks
