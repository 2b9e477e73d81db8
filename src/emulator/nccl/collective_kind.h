// The kinds of collective and their sizes.
#ifndef COMMPOOL_SRC_EMULATOR_NCCL_COLLECTIVE_KIND_H_
#define COMMPOOL_SRC_EMULATOR_NCCL_COLLECTIVE_KIND_H_

#include <cstddef>
#include <cstdint>

namespace commpool::internal::emulated_nccl {

// kTransfers is what a group's sends and receives become.
enum class CollectiveKind : uint32_t { kAllReduce, kAllGather, kBroadcast, kReduceScatter, kReduce, kTransfers };

// "AllReduce", as NCCL's log names it.
const char* CollectiveName(CollectiveKind kind);

// Bytes of the whole result: what choices and times go by.
size_t ResultBytes(CollectiveKind kind, size_t count, size_t element_bytes, int ranks);

}  // namespace commpool::internal::emulated_nccl

#endif  // COMMPOOL_SRC_EMULATOR_NCCL_COLLECTIVE_KIND_H_
