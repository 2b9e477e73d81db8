// Which segment holds an address, anywhere inside.
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "src/library/engine/heap.h"

namespace commpool::internal::engine {
namespace {

class HeapAddresses : public ::testing::Test {
 protected:
  // The number of the segment; -1 where none holds the address.
  int SegmentAt(Address address) const {
    const Block* const block = heap_.Find(address);
    return block == nullptr ? -1 : static_cast<int>(block->segment->index);
  }

  Heap heap_{1, MergePolicy::kCompatible};
};

using HeapAddressesDeathTest = HeapAddresses;

TEST_F(HeapAddresses, FindTheSegmentThatHoldsThem) {
  heap_.AddSegment({0x1000, 0x1000});
  EXPECT_EQ(SegmentAt(0x1000), 0);
  EXPECT_EQ(SegmentAt(0x1801), 0);
  EXPECT_EQ(SegmentAt(0x1fff), 0);
}

TEST_F(HeapAddresses, FindNothingOutside) {
  EXPECT_EQ(SegmentAt(0), -1);
  heap_.AddSegment({0x1000, 0x1000});
  EXPECT_EQ(SegmentAt(0), -1);
  EXPECT_EQ(SegmentAt(0xfff), -1);
  EXPECT_EQ(SegmentAt(0x2000), -1);
  EXPECT_EQ(SegmentAt(std::numeric_limits<Address>::max()), -1);
}

TEST_F(HeapAddresses, TellAdjacentSegmentsApart) {
  heap_.AddSegment({0x2000, 0x1000});
  heap_.AddSegment({0x1000, 0x1000});
  EXPECT_EQ(SegmentAt(0x1fff), 1);
  EXPECT_EQ(SegmentAt(0x2000), 0);
  heap_.RemoveSegment(1);
  EXPECT_EQ(SegmentAt(0x1fff), -1);
  EXPECT_EQ(SegmentAt(0x2000), 0);
}

TEST_F(HeapAddresses, ReachTheVeryTopOfTheAddressSpace) {
  heap_.AddSegment({std::numeric_limits<Address>::max() - 0xfff, 0x1000});
  EXPECT_EQ(SegmentAt(std::numeric_limits<Address>::max()), 0);
}

// The search goes from the segment's begin and from the address at once: either end may be nearer.
TEST_F(HeapAddresses, FindTheBlockThatHoldsThemThroughRandomChanges) {
  Heap heap(512, MergePolicy::kCompatible);
  heap.AddSegment({0x100000, 0x100000});
  std::mt19937_64 random(7);
  std::vector<Block*> live;
  for (int step = 0; step < 4000; ++step) {
    const uint64_t bytes = 512 * (1 + (random() % 8 == 0 ? random() % 400 : random() % 4));
    Block* const taken = live.size() < 300 ? heap.Take({.bytes = bytes}) : nullptr;
    if (taken != nullptr) {
      live.push_back(taken);
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      heap.Close(live.back(), 0);
      live.pop_back();
    }
    const Address address = 0x100000 + random() % 0x100000;
    const Block* holder = heap.segments().at(0)->first;
    while (AddressOf(*holder) + holder->bytes <= address) holder = holder->next;
    ASSERT_EQ(heap.Find(address), holder);
  }
}

TEST_F(HeapAddressesDeathTest, AreOfOneSegmentAndDoNotWrapAround) {
  heap_.AddSegment({0x2000, 0x1000});
  EXPECT_DEATH(heap_.AddSegment({0x2000, 0x1000}), "overlap");
  EXPECT_DEATH(heap_.AddSegment({0x2fff, 0x1000}), "overlap");
  EXPECT_DEATH(heap_.AddSegment({0x1001, 0x1000}), "overlap");
  EXPECT_DEATH(heap_.AddSegment({0x4000, 0}), "empty");
  EXPECT_DEATH(heap_.AddSegment({std::numeric_limits<Address>::max(), 2}), "wraps around");
  EXPECT_DEATH(heap_.RemoveSegment(1), "unknown");
}

}  // namespace
}  // namespace commpool::internal::engine
