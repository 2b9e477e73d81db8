// Which kernel a collective gets, and how long it takes.
#include "src/emulator/nccl/kernel_choice.h"

#include <gtest/gtest.h>

#include "src/emulator/nccl/collective_times.h"

namespace commpool::internal::emulated_nccl {
namespace {

constexpr size_t kMebi = 1 << 20;

TEST(KernelChoice, KnowsWhichCollectivesHaveSymmetricKernels) {
  constexpr int kVersion = 22809;
  EXPECT_TRUE(HasSymmetricKernel(CollectiveKind::kAllReduce, ncclFloat, ncclSum, kVersion));
  EXPECT_TRUE(HasSymmetricKernel(CollectiveKind::kAllReduce, ncclBfloat16, ncclSum, kVersion));
  EXPECT_FALSE(HasSymmetricKernel(CollectiveKind::kAllReduce, ncclDouble, ncclSum, kVersion));
  EXPECT_FALSE(HasSymmetricKernel(CollectiveKind::kAllReduce, ncclInt32, ncclSum, kVersion));
  EXPECT_FALSE(HasSymmetricKernel(CollectiveKind::kAllReduce, ncclFloat, ncclMax, kVersion));
  EXPECT_FALSE(HasSymmetricKernel(CollectiveKind::kAllReduce, ncclFloat, ncclAvg, kVersion));
  EXPECT_TRUE(HasSymmetricKernel(CollectiveKind::kAllReduce, ncclFloat, ncclAvg, 23003));
  EXPECT_TRUE(HasSymmetricKernel(CollectiveKind::kAllGather, ncclInt8, ncclSum, kVersion));
  EXPECT_FALSE(HasSymmetricKernel(CollectiveKind::kBroadcast, ncclFloat, ncclSum, kVersion));
}

TEST(KernelChoice, ChoosesTheProtocolByBytesAndPermission) {
  EXPECT_EQ(ChooseProtocol(8192, nullptr), Protocol::kLowLatency);
  EXPECT_EQ(ChooseProtocol(kMebi, nullptr), Protocol::kLowLatency128);
  EXPECT_EQ(ChooseProtocol(64 * kMebi, nullptr), Protocol::kSimple);
  EXPECT_EQ(ChooseProtocol(8192, "Simple"), Protocol::kSimple);
  EXPECT_EQ(ChooseProtocol(64 * kMebi, "LL,LL128"), Protocol::kLowLatency128);
  EXPECT_EQ(ChooseProtocol(8192, "^LL"), Protocol::kLowLatency128);
}

TEST(KernelChoice, NamesTheKernelBySize) {
  EXPECT_STREQ(SymmetricKernelName(CollectiveKind::kAllReduce, 8192, 4), "AllReduce_AGxLL_R");
  EXPECT_STREQ(SymmetricKernelName(CollectiveKind::kAllReduce, kMebi, 4), "AllReduce_RSxLD_AGxST");
  EXPECT_STREQ(SymmetricKernelName(CollectiveKind::kAllGather, kMebi, 4), "AllGather_ST");
}

TEST(KernelChoice, CopyEnginesGatherForACommunicatorThatUsesNoSms) {
  constexpr int kZero = NCCL_CTA_POLICY_ZERO;
  constexpr int kBoth = NCCL_CTA_POLICY_ZERO | NCCL_CTA_POLICY_EFFICIENCY;
  EXPECT_TRUE(UsesCopyEngines(CollectiveKind::kAllGather, kZero, 22809));
  EXPECT_FALSE(UsesCopyEngines(CollectiveKind::kAllGather, kZero, 22707));
  EXPECT_FALSE(UsesCopyEngines(CollectiveKind::kAllGather, kBoth, 22809));
  EXPECT_TRUE(UsesCopyEngines(CollectiveKind::kAllGather, kBoth, 22902));
  for (const int other : {NCCL_CTA_POLICY_DEFAULT, NCCL_CTA_POLICY_EFFICIENCY}) {
    EXPECT_FALSE(UsesCopyEngines(CollectiveKind::kAllGather, other, 23007));
  }
  EXPECT_FALSE(UsesCopyEngines(CollectiveKind::kReduceScatter, kZero, 22809));
}

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
