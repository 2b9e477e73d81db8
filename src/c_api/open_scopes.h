// Whether a scope is open in the process, and allocation where one is. Any thread.
#ifndef COMMPOOL_SRC_C_API_OPEN_SCOPES_H_
#define COMMPOOL_SRC_C_API_OPEN_SCOPES_H_

#include <atomic>
#include <cstdint>

#include "commpool/commpool.h"

namespace commpool::internal {

// Not 0 where one is; it may stay so for a few hundred calls after the last has ended (ScopeTable::NoteUncaught). It
// only tells where none can catch: so it needs no order beyond what the program has between a scope's beginning and an
// allocation.
extern constinit std::atomic<uint64_t> open_scopes;

// commpool_allocate_in_scope, where some scope is open.
commpool_status AllocateCaught(int device, uint64_t bytes, CUstream_st* stream, void** pointer);

}  // namespace commpool::internal

// The same flag, for the adapters of this repository: what forwards each of a framework's allocations reads it in place
// of a call. Exported under a version of its own, which programs have no header for.
extern "C" COMMPOOL_API const std::atomic<uint64_t>* const commpool_open_scopes;

#endif  // COMMPOOL_SRC_C_API_OPEN_SCOPES_H_
