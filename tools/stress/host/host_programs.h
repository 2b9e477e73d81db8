// What runs of `commpool_stress host` do: one sequence of calls a kind of pool, with every call of the library that
// such a pool has. Each makes the same calls in each run, and ends its pools.
#ifndef COMMPOOL_TOOLS_STRESS_HOST_HOST_PROGRAMS_H_
#define COMMPOOL_TOOLS_STRESS_HOST_HOST_PROGRAMS_H_

#include "tools/stress/host/host_machine.h"

namespace commpool::cli {

// A fixed pool, registered as local buffers, and one with a limit.
void RunFixed(HostMachine& machine);
// An expandable pool, and one that lends its memory to scopes.
void RunExpandable(HostMachine& machine);
// The symmetric pools of two ranks that one thread owns.
void RunSymmetric(HostMachine& machine);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_STRESS_HOST_HOST_PROGRAMS_H_
