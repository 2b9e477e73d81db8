// The streams that use a block: in order, each once; and which streams a new user must wait for.
#include "src/library/engine/block.h"

#include <gtest/gtest.h>

namespace commpool::internal::engine {
namespace {

Uses UsesOf(std::initializer_list<Use> uses) {
  Uses all;
  for (const Use& use : uses) AddUse(all, use);
  return all;
}

// "1:5" is fence 5 of stream 1; a stream alone is all of its work.
std::string Waits(const Uses& uses, StreamKey stream) {
  std::string text;
  for (const StreamUse& wait : WaitsOf(uses, stream)) {
    text += (text.empty() ? "" : " ") + std::to_string(wait.stream);
    if (wait.fence != kNoFence) text += ":" + std::to_string(wait.fence);
  }
  return text;
}

TEST(BlockUses, AreAscendingAndEachOnce) {
  EXPECT_EQ(UsesOf({{3, kNoFence}, {1, 9}, {2, kNoFence}, {1, 4}, {3, kNoFence}}),
            (Uses{{1, 4}, {1, 9}, {2, kNoFence}, {3, kNoFence}}));
}

TEST(BlockUses, OfTwoBlocksUnite) {
  Uses uses = UsesOf({{1, kNoFence}, {4, 2}});
  UniteUses(uses, UsesOf({{2, 7}, {4, 2}, {5, kNoFence}}));
  EXPECT_EQ(uses, (Uses{{1, kNoFence}, {2, 7}, {4, 2}, {5, kNoFence}}));
}

TEST(BlockUses, AreWaitedForByOtherStreamsAlone) {
  EXPECT_EQ(Waits(UsesOf({{1, kNoFence}}), 1), "");
  EXPECT_EQ(Waits(UsesOf({{1, kNoFence}, {2, kNoFence}}), 1), "2");
  EXPECT_EQ(Waits(UsesOf({{1, 4}, {2, kNoFence}, {3, 8}}), 2), "1:4 3:8");
}

TEST(BlockUses, WithoutAFenceCoverTheFencesOfTheirStream) {
  static_assert(kNoFence == 0, "a use without a fence sorts first");
  EXPECT_EQ(Waits(UsesOf({{2, kNoFence}, {2, 5}, {2, 6}, {3, 1}, {3, 2}}), 1), "2 3:1 3:2");
}

TEST(BlockArena, GivesRecycledBlocksOutAgainWithTheirRoomForUses) {
  BlockArena arena;
  Block* const block = arena.Make();
  block->uses = {{1, kNoFence}, {2, 5}, {3, kNoFence}};
  const Use* const room = block->uses.begin();
  arena.Recycle(block);
  ASSERT_EQ(arena.Make(), block);
  block->uses = Uses();
  block->uses.push_back({4, kNoFence});
  EXPECT_NE(block->uses.begin(), room) << "the first lies in the block";
  for (const StreamKey stream : {5, 6}) block->uses.push_back({stream, kNoFence});
  EXPECT_EQ(block->uses.begin(), room);
  EXPECT_NE(arena.Make(), block) << "it was spare once";
}

}  // namespace
}  // namespace commpool::internal::engine
