#include "src/emulator/nccl/kernel_choice.h"

#include <strings.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "src/emulator/nccl/releases.h"

namespace commpool::internal::emulated_nccl {

namespace {

bool Allows(const char* allowed, const char* name) {
  if (allowed == nullptr || *allowed == '\0') return true;
  std::string_view list = allowed;
  const bool excludes = list.front() == '^';
  if (excludes) list.remove_prefix(1);
  bool named = false;
  while (!list.empty()) {
    const std::string entry(list.substr(0, list.find(',')));
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
    named = named || strcasecmp(entry.c_str(), name) == 0;
  }
  return named != excludes;
}

}  // namespace

const char* ProtocolName(Protocol protocol) {
  switch (protocol) {
    case Protocol::kLowLatency:
      return "LL";
    case Protocol::kLowLatency128:
      return "LL128";
    case Protocol::kSimple:
      return "SIMPLE";
  }
  return "Unknown";
}

Protocol ChooseProtocol(size_t bytes, const char* allowed) {
  constexpr size_t kLowLatencyLimit = 32 << 10;
  constexpr size_t kLowLatency128Limit = 4 << 20;
  const bool low = Allows(allowed, "LL");
  const bool middle = Allows(allowed, "LL128");
  const bool simple = Allows(allowed, "Simple");
  if (bytes <= kLowLatencyLimit && low) return Protocol::kLowLatency;
  if (bytes < kLowLatency128Limit && middle) return Protocol::kLowLatency128;
  if (simple) return Protocol::kSimple;
  return middle ? Protocol::kLowLatency128 : Protocol::kLowLatency;
}

int ChooseChannels(size_t bytes) {
  constexpr size_t kBytesAChannel = 256 << 10;
  return static_cast<int>(std::clamp<size_t>(bytes / kBytesAChannel, 1, 24));
}

// NCCL 2.28.9, src/sym_kernels.cc: all types for all-gather; for the others sums of floats of 8 to 32 bits, but no
// minimum, no maximum and no whole numbers (NVIDIA/nccl#2014). Averages: NCCL 2.30.3.
bool HasSymmetricKernel(CollectiveKind kind, ncclDataType_t type, ncclRedOp_t operation, int version) {
  if (kind == CollectiveKind::kAllGather) return true;
  if (kind != CollectiveKind::kAllReduce && kind != CollectiveKind::kReduceScatter) return false;
  const bool adds = operation == ncclSum || (operation == ncclAvg && version >= kFirstWithSymmetricAverages);
  return adds && type >= ncclFloat16 && type <= ncclFloat8e5m2 && type != ncclFloat64;
}

// NCCL 2.28.9 and 2.29.2, src/enqueue.cc. All-to-all, gather and scatter are transfers here.
bool UsesCopyEngines(CollectiveKind kind, int policy, int version) {
  if (kind != CollectiveKind::kAllGather || version < kFirstWithCopyEngines) return false;
  const int counted = version < kFirstWithCombinedPolicies ? policy : policy & NCCL_CTA_POLICY_ZERO;
  return counted == NCCL_CTA_POLICY_ZERO;
}

const char* SymmetricKernelName(CollectiveKind kind, size_t bytes, int ranks) {
  // At this size the extra bytes of the low-latency kernel cost as much as its shorter start saves (NCCL's own model).
  const size_t crossover = size_t{128 << 10} / static_cast<size_t>(ranks);
  const bool low_latency = bytes <= crossover;
  if (kind == CollectiveKind::kAllGather) return low_latency ? "AllGather_LL" : "AllGather_ST";
  if (kind == CollectiveKind::kReduceScatter) return low_latency ? "ReduceScatter_LL" : "ReduceScatter_LD";
  return low_latency ? "AllReduce_AGxLL_R" : "AllReduce_RSxLD_AGxST";
}

}  // namespace commpool::internal::emulated_nccl
