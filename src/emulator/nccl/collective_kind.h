// The kinds of collective and their sizes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace commpool::internal::emulated_nccl {

// kTransfers stands for the sends and receives of a group.
enum class CollectiveKind : uint32_t { kAllReduce, kAllGather, kBroadcast, kReduceScatter, kReduce, kTransfers };

// Returns a name as in NCCL's log, such as "AllReduce".
const char* CollectiveName(CollectiveKind kind);

// Returns the bytes of the whole result, which decide choices and times.
size_t ResultBytes(CollectiveKind kind, size_t count, size_t element_bytes, int ranks);

}  // namespace commpool::internal::emulated_nccl
