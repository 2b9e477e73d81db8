// What must be true of an engine's books between any two calls.
#ifndef COMMPOOL_SRC_ENGINE_INVARIANTS_H_
#define COMMPOOL_SRC_ENGINE_INVARIANTS_H_

#include "src/engine/ledger.h"

namespace commpool::internal::engine {

// Aborts with a reason where the books do not balance. In O(n log n); for tests, and for suspicion in production.
void CheckLedger(const Ledger& ledger);

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_ENGINE_INVARIANTS_H_
