#include "src/emulator/nccl/model.h"

#include <strings.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include "src/emulator/nccl/releases.h"

namespace commpool::internal::emulated_nccl {

namespace {

struct Point {
  double bytes;
  double microseconds;
};
using Curve = std::array<Point, 6>;

// Megabytes a second of bus bandwidth, as measured, become microseconds of an all-reduce.
constexpr double At(double bytes, int ranks, double bus_gigabytes) {
  return bytes * 2.0 * (ranks - 1) / ranks / (bus_gigabytes * 1000.0);
}

constexpr double kMebi = 1 << 20;

constexpr Curve MakeCurve(int ranks, double at_8k, double at_64k, double at_1m, double bus_8m, double bus_64m,
                          double bus_512m) {
  return {Point{8192, at_8k},
          Point{65536, at_64k},
          Point{kMebi, at_1m},
          Point{8 * kMebi, At(8 * kMebi, ranks, bus_8m)},
          Point{64 * kMebi, At(64 * kMebi, ranks, bus_64m)},
          Point{512 * kMebi, At(512 * kMebi, ranks, bus_512m)}};
}

// Float sums, out of place, on 2 and 4 H200 without multicast (NCCL 2.28.9).
constexpr Curve kTwoPlain = MakeCurve(2, 7.0, 7.5, 13.8, 180, 269, 317);
constexpr Curve kTwoWindow = MakeCurve(2, 4.6, 8.1, 14.8, 203, 243, 256);
constexpr Curve kFourPlain = MakeCurve(4, 10.1, 11.0, 17.2, 208, 315, 349);
constexpr Curve kFourWindow = MakeCurve(4, 4.7, 9.3, 17.7, 238, 277, 293);

double Interpolate(const Curve& curve, double bytes) {
  if (bytes <= curve.front().bytes) return curve.front().microseconds;
  if (bytes >= curve.back().bytes) return curve.back().microseconds * bytes / curve.back().bytes;
  const auto above = std::find_if(curve.begin(), curve.end(), [&](const Point& point) { return point.bytes >= bytes; });
  const Point& upper = *above;
  const Point& lower = *(above - 1);
  const double share = std::log(bytes / lower.bytes) / std::log(upper.bytes / lower.bytes);
  return lower.microseconds * std::pow(upper.microseconds / lower.microseconds, share);
}

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

// NCCL 2.28.9, src/sym_kernels.cc: any type for all-gather; sums of 8 to 32 bit floats for the others; no minimum,
// maximum or whole numbers (NVIDIA/nccl#2014). Averages: NCCL 2.30.3.
bool HasSymmetricKernel(CollectiveKind kind, ncclDataType_t type, ncclRedOp_t operation, int version) {
  if (kind == CollectiveKind::kAllGather) return true;
  if (kind != CollectiveKind::kAllReduce && kind != CollectiveKind::kReduceScatter) return false;
  const bool adds = operation == ncclSum || (operation == ncclAvg && version >= kFirstWithSymmetricAverages);
  return adds && type >= ncclFloat16 && type <= ncclFloat8e5m2 && type != ncclFloat64;
}

const char* SymmetricKernelName(CollectiveKind kind, size_t bytes, int ranks) {
  // Where the low-latency kernel's extra bytes cost as much as its shorter start saves (NCCL's own model).
  const size_t crossover = size_t{128 << 10} / static_cast<size_t>(ranks);
  const bool low_latency = bytes <= crossover;
  if (kind == CollectiveKind::kAllGather) return low_latency ? "AllGather_LL" : "AllGather_ST";
  if (kind == CollectiveKind::kReduceScatter) return low_latency ? "ReduceScatter_LL" : "ReduceScatter_LD";
  return low_latency ? "AllReduce_AGxLL_R" : "AllReduce_RSxLD_AGxST";
}

double CollectiveMicroseconds(CollectiveKind kind, size_t bytes, int ranks, bool symmetric) {
  if (ranks == 1) return 2;
  const Curve& curve = ranks == 2 ? (symmetric ? kTwoWindow : kTwoPlain) : (symmetric ? kFourWindow : kFourPlain);
  const double all_reduce = Interpolate(curve, static_cast<double>(bytes));
  // Larger rings move more bytes over each link: 2 (n - 1) / n against the 3 / 2 of four ranks.
  const double more_ranks = ranks <= 4 ? 1.0 : 2.0 * (ranks - 1) / ranks / 1.5;
  if (kind == CollectiveKind::kAllReduce) return all_reduce * more_ranks;
  // One pass over the ring instead of two.
  return std::max(curve.front().microseconds, all_reduce * more_ranks / 2);
}

double TransferMicroseconds(size_t bytes) {
  return CollectiveMicroseconds(CollectiveKind::kBroadcast, bytes, 2, false);
}

}  // namespace commpool::internal::emulated_nccl
