// ncclMemAlloc and ncclMemFree of a program under `commpool run --nccl-memory pools`. Any thread.
#ifndef COMMPOOL_SRC_INTERPOSE_NCCL_MEMORY_FROM_POOLS_H_
#define COMMPOOL_SRC_INTERPOSE_NCCL_MEMORY_FROM_POOLS_H_

#include <nccl.h>

#include <cstddef>
#include <optional>
#include <string>

namespace commpool::run {

// Nothing where NCCL shall answer itself.
std::optional<ncclResult_t> AllocateFromPools(void** pointer, size_t bytes);
std::optional<ncclResult_t> FreeToPools(void* pointer);

// A line for each pool; empty where nobody asked for memory.
std::string TableOfPools();

}  // namespace commpool::run

#endif  // COMMPOOL_SRC_INTERPOSE_NCCL_MEMORY_FROM_POOLS_H_
