#include "src/emulator/cuda/block_table.h"

#include <gtest/gtest.h>

namespace commpool::internal::emulator {
namespace {

constexpr CUdeviceptr kSegment = 0x100000;

std::string RuleBroken(const BlockTable& table, CUdeviceptr address, size_t bytes) {
  const std::optional<BlockMisuse> misuse = table.Check({address, bytes});
  return misuse ? misuse->rule : "";
}

TEST(BlockTable, SaysNothingOfMemoryThatNobodyAnnounced) {
  BlockTable table;
  EXPECT_TRUE(table.empty());
  EXPECT_EQ(RuleBroken(table, kSegment, 100), "");
  EXPECT_EQ(table.At(kSegment), nullptr);
  table.Freed(kSegment);
  table.Allocated(kSegment, 0, 1, "nothing");
  table.Allocated(UINT64_MAX - 10, 100, 1, "past the end of addresses");
  EXPECT_TRUE(table.empty());
}

TEST(BlockTable, KnowsABlockByAnyOfItsAddresses) {
  BlockTable table;
  table.Allocated(kSegment, 512, 4, "grads");
  ASSERT_NE(table.At(kSegment + 511), nullptr);
  EXPECT_EQ(table.At(kSegment + 511)->Describe(), "block of 512 bytes allocated as #1 for stream 4 by pool grads");
  EXPECT_EQ(table.At(kSegment + 512), nullptr);
  EXPECT_EQ(table.At(kSegment - 1), nullptr);
  EXPECT_EQ(RuleBroken(table, kSegment, 512), "");
}

TEST(BlockTable, LetsAReplayCrossBlocksThatItsCaptureWasGivenLater) {
  BlockTable table;
  table.Allocated(kSegment, 1024, 1, "captured");
  table.Allocated(kSegment, 512, 1, "captured");  // after the first was freed inside the capture
  table.Allocated(kSegment + 512, 512, 1, "captured");
  const commpoolEmulatorRange range{kSegment, 1024};
  EXPECT_TRUE(table.Check(range).has_value());
  EXPECT_FALSE(table.Check(range, BlockTable::Ends::kCountedBefore).has_value());
  table.Freed(kSegment + 512);
  EXPECT_TRUE(table.Check(range, BlockTable::Ends::kCountedBefore).has_value()) << "freed is freed";
}

TEST(BlockTable, KnowsAFreedBlockUntilItIsAllocatedAgain) {
  BlockTable table;
  table.Allocated(kSegment, 512, 1, "grads");
  table.Freed(kSegment + 1);
  EXPECT_EQ(RuleBroken(table, kSegment, 512), "") << "no block begins there";
  table.Freed(kSegment);
  EXPECT_EQ(RuleBroken(table, kSegment + 100, 1), "use of a freed block");
  EXPECT_EQ(RuleBroken(table, kSegment - 10, 20), "use of a freed block");
  table.Allocated(kSegment, 512, 1, "grads");
  EXPECT_EQ(RuleBroken(table, kSegment, 512), "");
}

TEST(BlockTable, KnowsWhatAnAllocatorHadHeardWhenTheMemoryWasFree) {
  BlockTable table;
  const auto first = std::make_shared<Clock>();
  const auto later = std::make_shared<Clock>();
  later->Set({1, 2});
  table.Allocated(kSegment, 512, 1, "PyTorch", first);
  EXPECT_EQ(table.Ended(kSegment + 1, later), nullptr) << "no block begins there";
  table.Ended(kSegment, first);
  table.Allocated(kSegment, 256, 1, "PyTorch", later);
  EXPECT_EQ(table.At(kSegment)->heard, first);
  table.Ended(kSegment, later);
  table.Allocated(kSegment, 1024, 1, "PyTorch", std::make_shared<Clock>());
  EXPECT_EQ(table.At(kSegment)->heard, later) << "the last of the blocks that lay there";
}

TEST(BlockTable, KnowsTheRestOfAFreedBlock) {
  BlockTable table;
  table.Allocated(kSegment, 1024, 1, "grads");
  table.Freed(kSegment);
  table.Allocated(kSegment + 256, 256, 1, "grads");
  EXPECT_EQ(RuleBroken(table, kSegment, 256), "use of a freed block");
  EXPECT_EQ(RuleBroken(table, kSegment + 256, 256), "");
  EXPECT_EQ(RuleBroken(table, kSegment + 512, 512), "use of a freed block");
  EXPECT_EQ(table.At(kSegment + 600)->number, 1u);
}

TEST(BlockTable, SeesAUseThatRunsIntoAnotherBlock) {
  BlockTable table;
  table.Allocated(kSegment, 512, 1, "grads");
  table.Allocated(kSegment + 512, 512, 1, "moments");
  EXPECT_EQ(RuleBroken(table, kSegment + 500, 12), "");
  const std::optional<BlockMisuse> misuse = table.Check({kSegment + 500, 13});
  ASSERT_TRUE(misuse.has_value());
  EXPECT_STREQ(misuse->rule, "access beyond a block");
  EXPECT_NE(misuse->details.find("grads"), std::string::npos);
  EXPECT_NE(misuse->details.find("moments"), std::string::npos);
}

TEST(BlockTable, LetsAUseRunIntoMemoryThatNobodyAnnounced) {
  BlockTable table;
  table.Allocated(kSegment, 512, 1, "grads");
  EXPECT_EQ(RuleBroken(table, kSegment, 1024), "");
}

TEST(BlockTable, ForgetsTheBlocksOfASegment) {
  BlockTable table;
  table.Allocated(kSegment, 512, 1, "grads");
  table.Allocated(kSegment + 512, 512, 1, "grads");
  table.Freed(kSegment);
  table.Forget(kSegment, 1024);
  EXPECT_TRUE(table.empty());
}

}  // namespace
}  // namespace commpool::internal::emulator
