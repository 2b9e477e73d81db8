// Functions without a context that allocate from one pool, for frameworks that take a plain function pointer. The
// library has a fixed table of them, and binds each to a pool at run time. Any thread.
#ifndef COMMPOOL_SRC_C_API_POOL_FUNCTIONS_H_
#define COMMPOOL_SRC_C_API_POOL_FUNCTIONS_H_

#include "commpool/commpool.h"
#include "commpool/status.h"
#include "src/pool/runtime.h"

namespace commpool::internal {

// The function of the pool, the same at each call. Where all functions are taken, that of the oldest destroyed pool
// serves this pool from now on; kOutOfMemory where no pool was destroyed.
Result<commpool_plain_allocate> FunctionOf(Runtime& runtime, const Pool& pool);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_C_API_POOL_FUNCTIONS_H_
