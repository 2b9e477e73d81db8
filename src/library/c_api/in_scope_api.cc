// The C ABI: allocation only where a scope catches. A separate file, because every build optimises it: a test counts
// the instructions that it costs a program without scopes (tests/c_api/instructions_test.cc).
#include "commpool/commpool.h"
#include "src/library/c_api/open_scopes.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool::internal;
// NOLINTEND

commpool_status commpool_allocate_in_scope(int device, uint64_t bytes, CUstream_st* stream, void** pointer) {
  if (open_scopes.load(std::memory_order_relaxed) == 0) return COMMPOOL_NOT_CAUGHT;
  return AllocateCaught(device, bytes, stream, pointer);
}
