// Tells whether a scope is open in the process, and allocates where one is. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "commpool/commpool.h"

namespace commpool::internal {

// Not 0 while a scope is open, and for up to a few hundred calls after the last one has ended
// (ScopeTable::NoteUncaught). 0 only means that no scope can catch. So a relaxed load is enough: a program that begins
// a scope in one thread and allocates in another orders the two calls itself. Hidden: else its address is loaded first.
[[gnu::visibility("hidden")]] extern constinit std::atomic<uint64_t> open_scopes;

// commpool_allocate_in_scope, where a scope is open.
commpool_status AllocateCaught(int device, uint64_t bytes, CUstream_st* stream, void** pointer);

}  // namespace commpool::internal

// The same flag for the adapters of this repository, which forward each allocation of a framework: a read is cheaper
// than a call. It is exported under a version of its own, and no public header declares it.
COMMPOOL_API const std::atomic<uint64_t>* const commpool_open_scopes;
