// The reservation that was found is enough for the trace in a real pool; one step less is not enough in the engine.
#include "tools/cli/replay/least_reservation.h"

#include <gtest/gtest.h>

#include "tools/cli/replay/replay_run.h"

namespace commpool::cli {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// Steps whose blocks change, beside some that live on.
Trace Changing() {
  std::string text;
  const auto take = [&](uint64_t block, uint64_t bytes) {
    text += "a " + std::to_string(block) + " " + std::to_string(bytes) + " 0\n";
  };
  const auto end = [&](uint64_t block) { text += "f " + std::to_string(block) + "\n"; };
  for (uint64_t step = 0; step < 30; ++step) {
    const uint64_t first = 10 * step;
    for (uint64_t place = 0; place < 8; ++place) take(first + place, (3 + (first + place) * 37 % 41) * kMiB + 4096);
    take(first + 8, 200 * kMiB - step * kMiB);
    take(first + 9, 64 * kMiB);
    for (const uint64_t place : {1, 8, 3, 0, 7, 9, 5}) end(first + place);
    if (step > 2) end(first - 28);
  }
  return ParseTrace("changing", text).value();
}

TEST(LeastReservation, CarriesTheTraceInARealPool) {
  const Trace trace = Changing();
  const uint64_t least = FindLeastReservation(trace);
  EXPECT_GT(least, trace.peak_requested_bytes);
  EXPECT_LT(least, 2 * trace.peak_requested_bytes);
  EXPECT_EQ(least % (2 * kMiB), 0u);
  const std::unique_ptr<SoloDevice> device = SoloDevice::Open(1, DriverTimes::kMeasured).value();
  const auto replay = [&](uint64_t reserve) {
    return ReplayInPool(*device, trace, {.mode = ReplayMode::kSymmetric, .reserve_bytes = reserve}).value();
  };
  const ReplayMeasures enough = replay(least);
  EXPECT_EQ(enough.costs.reserves, 0u);
  EXPECT_EQ(enough.peak_reserved_bytes, least);
  EXPECT_GT(replay(least - 2 * kMiB).costs.reserves, 0u);
}

TEST(LeastReservation, IsThePeakWhereNothingIsLost) {
  const Trace trace = ParseTrace("plain", "a 0 4194304 0\na 1 2097152 0\nf 0\na 2 4194304 0\n").value();
  EXPECT_EQ(FindLeastReservation(trace), 6 * kMiB);
}

}  // namespace
}  // namespace commpool::cli
