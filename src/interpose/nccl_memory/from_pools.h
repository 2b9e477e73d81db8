// ncclMemAlloc and ncclMemFree of a program under `commpool run --nccl-memory pools`. Any thread.
#pragma once

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
