#include "src/emulator/cuda/latency.h"

#include <array>
#include <cstring>

namespace commpool::internal::emulator {

namespace {

// Cost as a linear function of bytes, fitted to 2 MiB, 256 MiB and 1 GiB. It depends on the number of calls far more
// than on their size.
struct Latency {
  const char* call;
  double base_us;
  double us_per_gib;
};

constexpr std::array kLatencies = {
    Latency{"cuMemAddressReserve", 0.4, 1.5},
    Latency{"cuMemCreate", 5.4, 80},
    Latency{"cuMemMap", 0.4, 0.2},
    Latency{"cuMemUnmap", 12.5, 12.5},
    Latency{"cuMemRelease", 8, 245},
    Latency{"cuMemAlloc", 28, 650},
    Latency{"cuMemFree", 31, 350},
    Latency{"cuMemAllocAsync", 0.45, 0},
    Latency{"cuMemAllocFromPoolAsync", 0.45, 0},
    Latency{"cuMemFreeAsync", 0.35, 0},
    Latency{"cuEventRecord", 0.174, 0},
    Latency{"cuEventQuery", 1.2, 0},
    Latency{"cuMemExportToShareableHandle", 800, 0},
    Latency{"cuMemImportFromShareableHandle", 40, 0},
};

}  // namespace

double LatencyOf(const char* call, uint64_t bytes) {
  for (const Latency& latency : kLatencies) {
    if (std::strcmp(latency.call, call) == 0) {
      return latency.base_us + latency.us_per_gib * static_cast<double>(bytes) / (1 << 30);
    }
  }
  return 0.2;
}

// Fitted to calls over one page of 2 MiB to 4 GiB, and over 200 and 2,048 pages. In traces, whose calls had 2 to 40
// pages of 25 MiB on average, a page cost 22 to 25 us.
double AccessLatency(size_t mappings, size_t devices, uint64_t bytes) {
  const double gib = static_cast<double>(bytes) / (1 << 30);
  return static_cast<double>(devices) * (18 * static_cast<double>(mappings) + 250 * gib);
}

double CopyDuration(uint64_t bytes) {
  constexpr double kBytesPerMicrosecond = 2.0e6;  // 2 TB/s: half of the HBM bandwidth, because a copy reads and writes
  return 2.0 + static_cast<double>(bytes) / kBytesPerMicrosecond;
}

}  // namespace commpool::internal::emulator
