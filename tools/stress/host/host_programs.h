// The programs of `commpool_stress host`: for each kind of pool one sequence with every call that such a pool has. A
// program makes the same calls in each run, and ends its pools.
#pragma once

#include "tools/stress/host/host_machine.h"

namespace commpool::cli {

// A fixed pool with local registrations, and one with a limit.
void RunFixed(HostMachine& machine);
// An expandable pool, and one that serves scopes.
void RunExpandable(HostMachine& machine);
// Symmetric pools of two ranks that one thread owns.
void RunSymmetric(HostMachine& machine);

}  // namespace commpool::cli
