// The books of an audit: what is held, of how many bytes, and until when.
#include <gtest/gtest.h>

#include "src/interpose/audit/array_accounts.h"
#include "src/interpose/audit/ledger.h"
#include "src/interpose/audit/physical_book.h"

namespace commpool::audit {
namespace {

// How large the elements of an array are.

TEST(ElementBytes, OfALineAPlaneAndABody) {
  EXPECT_EQ(ElementBytes({100, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, 1), 100u);
  EXPECT_EQ(ElementBytes({100, 10, 0, CU_AD_FORMAT_HALF, 4, 0}, 1), 8000u);
  EXPECT_EQ(ElementBytes({100, 10, 3, CU_AD_FORMAT_FLOAT, 2, 0}, 1), 24000u);
  EXPECT_EQ(ElementBytes({8, 8, 0, CU_AD_FORMAT_UNORM_INT16X4, 4, 0}, 1), 512u);
}

TEST(ElementBytes, EachLevelIsHalfAsWideHighAndDeep) {
  EXPECT_EQ(ElementBytes({8, 4, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, 4), 32u + 8 + 2 + 1);
  EXPECT_EQ(ElementBytes({4, 4, 4, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, 3), 64u + 8 + 1);
}

TEST(ElementBytes, LevelsHaveAllLayers) {
  EXPECT_EQ(ElementBytes({4, 4, 6, CU_AD_FORMAT_UNSIGNED_INT8, 1, CUDA_ARRAY3D_LAYERED}, 3), 6u * (16 + 4 + 1));
}

// The driver refuses it; a book must bear it.
TEST(ElementBytes, OfMoreLevelsThanThereAreIsANumber) {
  EXPECT_GT(ElementBytes({8, 8, 8, CU_AD_FORMAT_FLOAT, 1, 0}, ~0u), 0u);
}

const RowKey kRow = {"NCCL", What::kMemory, 1};

class LedgerTest : public testing::Test {
 protected:
  void Hold(uint64_t key, uint64_t bytes, const RowKey& row = kRow) { ledger_.Hold(key, {row, bytes, ""}, 0); }
  Row RowOf(const RowKey& key) { return ledger_.Rows()[key]; }

  Ledger ledger_;
};

TEST_F(LedgerTest, SumsWhatIsHeldAndRemembersThePeak) {
  ledger_.Hold(100, {kRow, 30, ""}, 5);
  ledger_.Hold(200, {kRow, 12, ""}, 6);
  ledger_.End(*ledger_.Take(What::kMemory, 100), 7);
  const Row row = RowOf(kRow);
  EXPECT_EQ(row.made, 2u);
  EXPECT_EQ(row.ended, 1u);
  EXPECT_EQ(row.bytes_made, 42);
  EXPECT_EQ(row.bytes_now, 12);
  EXPECT_EQ(row.bytes_peak, 42);
  EXPECT_EQ(row.made_ns, 11u);
  EXPECT_EQ(row.ended_ns, 7u);
  EXPECT_EQ(ledger_.DeviceBytes(1), 12);
}

TEST_F(LedgerTest, WhatIsPutBackWasNeverGone) {
  Hold(100, 30);
  ledger_.PutBack(100, *ledger_.Take(What::kMemory, 100));
  EXPECT_EQ(ledger_.DeviceBytes(1), 30);
  EXPECT_TRUE(ledger_.Take(What::kMemory, 100).has_value());
}

TEST_F(LedgerTest, KindsWithTheSameNumberAreApart) {
  Hold(100, 30);
  EXPECT_FALSE(ledger_.Take(What::kMapping, 100).has_value());
}

TEST_F(LedgerTest, AnAddressThatComesAgainEndsWhatHadIt) {
  Hold(100, 30);
  Hold(100, 8);
  EXPECT_EQ(ledger_.DeviceBytes(1), 8);
}

TEST_F(LedgerTest, MappingsAreNoMemoryOfADevice) {
  Hold(100, 30, {"NCCL", What::kMapping, 1});
  ledger_.Count({"NCCL", What::kAccess, 1}, 30, 0);
  EXPECT_EQ(ledger_.DeviceBytes(1), 0);
}

TEST_F(LedgerTest, ArraysAreMemoryOfADeviceAndWhatGraphsAskForIsInRowsOfTheDriver) {
  Hold(100, 30, {"torch", What::kArray, 1});
  ledger_.Count({"torch", What::kInGraphs, 1}, 12, 0);
  EXPECT_EQ(ledger_.DeviceBytes(1), 30);
  EXPECT_EQ(RowOf({"torch", What::kInGraphs, 1}).bytes_made, 12);
  EXPECT_EQ(RowOf({"torch", What::kInGraphs, 1}).bytes_now, 0);
}

TEST_F(LedgerTest, WhatWasMeasuredCountsAsHeldAndMayShrink) {
  ledger_.Count({"torch", What::kCode, 0}, 50, 0);
  ledger_.Count({"torch", What::kCode, 0}, -20, 0);
  EXPECT_EQ(ledger_.DeviceBytes(0), 30);
  EXPECT_EQ(RowOf({"torch", What::kCode, 0}).bytes_peak, 50);
}

TEST_F(LedgerTest, AResetDeviceHoldsNothing) {
  Hold(100, 30);
  Hold(100, 5, {"NCCL", What::kMemory, 0});
  Hold(300, 4);
  ledger_.ForgetAll(What::kMemory, 1);
  EXPECT_EQ(ledger_.DeviceBytes(1), 0);
  EXPECT_EQ(ledger_.DeviceBytes(0), 5);
}

TEST_F(LedgerTest, StacksAreSummedTheLargestFirst) {
  ledger_.Hold(1, {kRow, 10, "small.py:1 f"}, 0);
  ledger_.Hold(2, {kRow, 20, "large.py:1 f"}, 0);
  ledger_.Hold(3, {kRow, 20, "large.py:1 f"}, 0);
  Hold(4, 90);
  const auto stacks = ledger_.Stacks(1);
  ASSERT_EQ(stacks.size(), 1u);
  EXPECT_EQ(stacks[0].stack, "large.py:1 f");
  EXPECT_EQ(stacks[0].bytes, 40u);
  EXPECT_EQ(stacks[0].count, 2u);
}

class PhysicalBookTest : public testing::Test {
 protected:
  void Map(uint64_t address) { book_.Map(address, 0x100, 7); }
  // Whether the memory went with it.
  bool DropHandle() { return book_.DropHandle(book_.TakeHandle(7)); }

  PhysicalBook book_;
  const PhysicalId memory_ = book_.Make(7);
};

TEST_F(PhysicalBookTest, MemoryGoesWithItsLastHandle) {
  EXPECT_EQ(book_.TakeHandle(7), memory_);
  EXPECT_TRUE(book_.DropHandle(memory_));
}

TEST_F(PhysicalBookTest, AMappingOutlivesItsHandle) {
  Map(0x1000);
  EXPECT_FALSE(DropHandle());
  const auto parts = book_.TakeMapped(0x1000, 0x100);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].physical, memory_);
  EXPECT_TRUE(book_.DropMapped(memory_));
}

TEST_F(PhysicalBookTest, ARetainedHandleIsOneMore) {
  Map(0x1000);
  book_.Retain(7, 0x1080);
  EXPECT_FALSE(DropHandle());
  for (const MappedPart& part : book_.TakeMapped(0x1000, 0x100)) EXPECT_FALSE(book_.DropMapped(part.physical));
  EXPECT_TRUE(DropHandle());
  EXPECT_EQ(book_.TakeHandle(7), kNoPhysical);
  EXPECT_FALSE(book_.DropHandle(memory_));
}

TEST_F(PhysicalBookTest, AHandleThatComesAgainNamesOtherMemory) {
  Map(0x1000);
  DropHandle();
  const PhysicalId second = book_.Make(7);
  EXPECT_NE(second, memory_);
  EXPECT_TRUE(DropHandle());
}

TEST_F(PhysicalBookTest, TakesWholeMappingsInsideOfARangeAlone) {
  Map(0x1000);
  Map(0x1100);
  Map(0x1200);
  EXPECT_EQ(book_.TakeMapped(0x1000, 0x200).size(), 2u);
  EXPECT_EQ(book_.TakeMapped(0x1200, 0x80).size(), 0u);
}

TEST_F(PhysicalBookTest, WhatIsPutBackCanBeTakenAgain) {
  Map(0x1000);
  book_.PutBackMapped(book_.TakeMapped(0x1000, 0x100));
  book_.PutBackHandle(7, book_.TakeHandle(7));
  EXPECT_FALSE(DropHandle());
  EXPECT_EQ(book_.TakeMapped(0x1000, 0x100).size(), 1u);
  EXPECT_TRUE(book_.DropMapped(memory_));
}

TEST_F(PhysicalBookTest, KnowsNothingOfMemoryThatItNeverSaw) {
  EXPECT_EQ(book_.TakeHandle(9), kNoPhysical);
  EXPECT_FALSE(book_.DropHandle(kNoPhysical));
  book_.Map(0x1000, 0x100, 9);
  const auto parts = book_.TakeMapped(0x1000, 0x100);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_FALSE(book_.DropMapped(parts[0].physical));
}

}  // namespace
}  // namespace commpool::audit
