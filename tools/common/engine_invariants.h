// What is always true of an engine's books. Tests and the stress programs ask after every call.
#pragma once

#include "src/library/engine/engine.h"

namespace commpool::internal::engine {

// Aborts with a reason where the books contradict each other. O(n log n).
void CheckInvariants(const Engine& engine);

}  // namespace commpool::internal::engine
