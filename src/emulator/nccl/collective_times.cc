#include "src/emulator/nccl/collective_times.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace commpool::internal::emulated_nccl {

namespace {

struct Point {
  double bytes;
  double microseconds;
};
using Curve = std::array<Point, 6>;

// Turns measured bus bandwidth into the microseconds of an all-reduce.
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

// Sums of floats, not in place, on 2 and 4 H200s without multicast (NCCL 2.28.9).
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

}  // namespace

double CollectiveMicroseconds(CollectiveKind kind, size_t bytes, int ranks, bool symmetric) {
  if (ranks == 1) return 2;
  const Curve& curve = ranks == 2 ? (symmetric ? kTwoWindow : kTwoPlain) : (symmetric ? kFourWindow : kFourPlain);
  const double all_reduce = Interpolate(curve, static_cast<double>(bytes));
  // A larger ring moves more bytes over each link: 2 (n - 1) / n, beside 3 / 2 for four ranks.
  const double more_ranks = ranks <= 4 ? 1.0 : 2.0 * (ranks - 1) / ranks / 1.5;
  if (kind == CollectiveKind::kAllReduce) return all_reduce * more_ranks;
  // The other collectives go around the ring once, not twice.
  return std::max(curve.front().microseconds, all_reduce * more_ranks / 2);
}

double TransferMicroseconds(size_t bytes) {
  return CollectiveMicroseconds(CollectiveKind::kBroadcast, bytes, 2, false);
}

}  // namespace commpool::internal::emulated_nccl
