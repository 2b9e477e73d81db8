#include "src/emulator/nccl/collective_times.h"

#include <gtest/gtest.h>

namespace commpool::internal::emulated_nccl {
namespace {

constexpr size_t kMebi = 1 << 20;

double AllReduce(size_t bytes, int ranks, bool symmetric) {
  return CollectiveMicroseconds(CollectiveKind::kAllReduce, bytes, ranks, symmetric);
}

TEST(CollectiveTimes, ReturnsWhatWasMeasured) {
  EXPECT_NEAR(AllReduce(8192, 2, false), 7.0, 1e-9);
  EXPECT_NEAR(AllReduce(8192, 4, true), 4.7, 1e-9);
  EXPECT_NEAR(AllReduce(kMebi, 4, false), 17.2, 1e-9);
  // 64 MiB at 315 GB/s of bus bandwidth.
  EXPECT_NEAR(AllReduce(64 * kMebi, 4, false), 64.0 * kMebi * 1.5 / 315e3, 1e-6);
}

TEST(CollectiveTimes, GrowsWithTheBytes) {
  for (const int ranks : {2, 4, 8}) {
    for (const bool symmetric : {false, true}) {
      double before = 0;
      for (size_t bytes = 8192; bytes <= 1024 * kMebi; bytes *= 2) {
        const double now = AllReduce(bytes, ranks, symmetric);
        EXPECT_GT(now, before) << ranks << " ranks, " << bytes << " bytes";
        before = now;
      }
    }
  }
}

TEST(CollectiveTimes, WindowsHelpSmallMessagesAndCostLargeOnes) {
  EXPECT_LT(AllReduce(8192, 4, true), AllReduce(8192, 4, false));
  EXPECT_GT(AllReduce(64 * kMebi, 4, true), AllReduce(64 * kMebi, 4, false));
}

}  // namespace
}  // namespace commpool::internal::emulated_nccl
