#include "src/emulator/nccl/collective_kind.h"

namespace commpool::internal::emulated_nccl {

const char* CollectiveName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "AllReduce";
    case CollectiveKind::kAllGather:
      return "AllGather";
    case CollectiveKind::kBroadcast:
      return "Broadcast";
    case CollectiveKind::kReduceScatter:
      return "ReduceScatter";
    case CollectiveKind::kReduce:
      return "Reduce";
    case CollectiveKind::kTransfers:
      return "SendRecv";
  }
  return "Unknown";
}

size_t ResultBytes(CollectiveKind kind, size_t count, size_t element_bytes, int ranks) {
  const bool of_all = kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter;
  return count * element_bytes * (of_all ? static_cast<size_t>(ranks) : 1);
}

}  // namespace commpool::internal::emulated_nccl
