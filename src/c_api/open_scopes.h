// Tells whether a scope is open in the process, and allocates where one is. Any thread.
#ifndef COMMPOOL_SRC_C_API_OPEN_SCOPES_H_
#define COMMPOOL_SRC_C_API_OPEN_SCOPES_H_

#include <atomic>
#include <cstdint>

#include "commpool/commpool.h"

namespace commpool::internal {

// Not 0 where a scope is open. It may stay so for a few hundred calls after the last scope has ended
// (ScopeTable::NoteUncaught). It only rules scopes out, so it needs no memory order beyond the program's own between
// the begin of a scope and an allocation.
extern constinit std::atomic<uint64_t> open_scopes;

// commpool_allocate_in_scope, where a scope is open.
commpool_status AllocateCaught(int device, uint64_t bytes, CUstream_st* stream, void** pointer);

}  // namespace commpool::internal

// The same flag for the adapters of this repository, which forward each allocation of a framework: they read it instead
// of making a call. Exported under a version of its own, which no header of programs shows.
extern "C" COMMPOOL_API const std::atomic<uint64_t>* const commpool_open_scopes;

#endif  // COMMPOOL_SRC_C_API_OPEN_SCOPES_H_
