// What is always true of a pool's blocks. Tests and the stress programs ask after every call.
#pragma once

#include "src/library/pool/pool.h"

namespace commpool::internal {

// Aborts where the books of the engine, the caches and the captures contradict each other. While no other thread uses
// the pool.
void CheckInvariants(Pool& pool);

}  // namespace commpool::internal
