#include "src/interpose/audit/ledger.h"

#include <gtest/gtest.h>

namespace commpool::audit {
namespace {

const RowKey kRow = {"NCCL", What::kMemory, 1};

Row RowOf(const Ledger& ledger, const RowKey& key) {
  const auto rows = ledger.Rows();
  const auto found = rows.find(key);
  return found == rows.end() ? Row() : found->second;
}

TEST(Ledger, SumsWhatIsHeldAndRemembersThePeak) {
  Ledger ledger;
  ledger.Hold(100, {kRow, 30, ""}, 5);
  ledger.Hold(200, {kRow, 12, ""}, 6);
  ledger.End(*ledger.Take(What::kMemory, 100), 7);
  const Row row = RowOf(ledger, kRow);
  EXPECT_EQ(row.made, 2u);
  EXPECT_EQ(row.ended, 1u);
  EXPECT_EQ(row.bytes_made, 42);
  EXPECT_EQ(row.bytes_now, 12);
  EXPECT_EQ(row.bytes_peak, 42);
  EXPECT_EQ(row.made_ns, 11u);
  EXPECT_EQ(row.ended_ns, 7u);
  EXPECT_EQ(ledger.DeviceBytes(1), 12);
}

TEST(Ledger, WhatIsPutBackWasNeverGone) {
  Ledger ledger;
  ledger.Hold(100, {kRow, 30, ""}, 0);
  ledger.PutBack(100, *ledger.Take(What::kMemory, 100));
  EXPECT_EQ(ledger.DeviceBytes(1), 30);
  EXPECT_TRUE(ledger.Take(What::kMemory, 100).has_value());
}

TEST(Ledger, KindsWithTheSameNumberAreApart) {
  Ledger ledger;
  ledger.Hold(100, {kRow, 30, ""}, 0);
  EXPECT_FALSE(ledger.Take(What::kMapping, 100).has_value());
}

TEST(Ledger, AnAddressThatComesAgainEndsWhatHadIt) {
  Ledger ledger;
  ledger.Hold(100, {kRow, 30, ""}, 0);
  ledger.Hold(100, {kRow, 8, ""}, 0);
  EXPECT_EQ(ledger.DeviceBytes(1), 8);
}

TEST(Ledger, MappingsAreNoMemoryOfADevice) {
  Ledger ledger;
  ledger.Hold(100, {{"NCCL", What::kMapping, 1}, 30, ""}, 0);
  ledger.Count({"NCCL", What::kAccess, 1}, 30, 0);
  EXPECT_EQ(ledger.DeviceBytes(1), 0);
}

TEST(Ledger, ArraysAreMemoryOfADeviceAndWhatGraphsAskForIsInRowsOfTheDriver) {
  Ledger ledger;
  ledger.Hold(100, {{"torch", What::kArray, 1}, 30, ""}, 0);
  ledger.Count({"torch", What::kInGraphs, 1}, 12, 0);
  EXPECT_EQ(ledger.DeviceBytes(1), 30);
  EXPECT_EQ(RowOf(ledger, {"torch", What::kInGraphs, 1}).bytes_made, 12);
  EXPECT_EQ(RowOf(ledger, {"torch", What::kInGraphs, 1}).bytes_now, 0);
}

TEST(Ledger, WhatWasMeasuredCountsAsHeldAndMayShrink) {
  Ledger ledger;
  ledger.Count({"torch", What::kCode, 0}, 50, 0);
  ledger.Count({"torch", What::kCode, 0}, -20, 0);
  EXPECT_EQ(ledger.DeviceBytes(0), 30);
  EXPECT_EQ(RowOf(ledger, {"torch", What::kCode, 0}).bytes_peak, 50);
}

TEST(Ledger, AResetDeviceHoldsNothing) {
  Ledger ledger;
  ledger.Hold(100, {kRow, 30, ""}, 0);
  ledger.Hold(100, {{"NCCL", What::kMemory, 0}, 5, ""}, 0);
  ledger.Hold(300, {kRow, 4, ""}, 0);
  ledger.ForgetAll(What::kMemory, 1);
  EXPECT_EQ(ledger.DeviceBytes(1), 0);
  EXPECT_EQ(ledger.DeviceBytes(0), 5);
}

TEST(Ledger, StacksAreSummedTheLargestFirst) {
  Ledger ledger;
  ledger.Hold(1, {kRow, 10, "small.py:1 f"}, 0);
  ledger.Hold(2, {kRow, 20, "large.py:1 f"}, 0);
  ledger.Hold(3, {kRow, 20, "large.py:1 f"}, 0);
  ledger.Hold(4, {kRow, 90, ""}, 0);
  const auto stacks = ledger.Stacks(1);
  ASSERT_EQ(stacks.size(), 1u);
  EXPECT_EQ(stacks[0].stack, "large.py:1 f");
  EXPECT_EQ(stacks[0].bytes, 40u);
  EXPECT_EQ(stacks[0].count, 2u);
}

}  // namespace
}  // namespace commpool::audit
