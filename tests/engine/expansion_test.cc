// Plans of growth: the addresses of a request, the free pages that move there, and the new pages.
#include "src/library/engine/expansion.h"

#include <tuple>

#include "tests/engine/engine_fixture.h"

namespace commpool::internal::engine {
namespace {

constexpr uint64_t kPage = 2 * kMiB;  // the granularity

using Numbers = std::vector<std::tuple<uint64_t, uint64_t>>;
using Triples = std::vector<std::tuple<uint64_t, uint64_t, uint64_t>>;

class ExpansionTest : public ::testing::Test {
 protected:
  void AddTerritory(uint64_t pages, Space space = Space::kLarge) {
    heap_.AddSegment({At(territory_end_), pages * kPage}, space, BlockState::kUnmapped);
    territory_end_ += pages;
  }
  // In pages from the first territory's beginning.
  static Address At(uint64_t page) { return kBase + page * kPage; }
  // One page of that many units, free.
  void Map(uint64_t page, uint64_t units = 1) {
    heap_.Convert({At(page), units * kPage}, BlockState::kUnmapped, BlockState::kFree);
    pages_[At(page)] = units * kPage;
  }
  // The free block that begins at the address, live from now on or with other uses.
  Block* Take(Address address, uint64_t bytes, Part part = kCommonPart) {
    Block* block = heap_.Take({bytes, kStream, Reuse::kAnyStream, heap_.Find(address)->segment->space, part});
    EXPECT_EQ(AddressOf(*block), address);
    return block;
  }
  void Use(uint64_t page, StreamKey stream) {
    heap_.ChangeUses(heap_.Find(At(page)), [&](engine::Uses& uses) { uses = {{stream, kNoFence, kNoMoment}}; });
  }

  // Another territory, of so many pages, and memory: each page's place and units.
  void Lay(uint64_t pages, const Numbers& mapped) {
    AddTerritory(pages);
    for (const auto& [page, units] : mapped) Map(page, units);
  }

  Expansion Plan(uint64_t bytes, Donors donors = Donors::kWhole, Space space = Space::kLarge) const {
    return PlanExpansion(heap_, pages_, {bytes, kStream, space, donors, kPage, 4 * kPage});
  }
  // From, to, and how many: in pages.
  static Triples Moves(const Expansion& plan) {
    Triples moves;
    for (const PageMove& move : plan.moves) {
      moves.emplace_back((move.from - kBase) / kPage, (move.to - kBase) / kPage, move.bytes / kPage);
    }
    return moves;
  }
  static Numbers InPages(const std::vector<SegmentRange>& ranges) {
    Numbers pages;
    for (const SegmentRange& range : ranges) pages.emplace_back((range.address - kBase) / kPage, range.bytes / kPage);
    return pages;
  }

  Heap heap_{512, MergePolicy::kCompatible};
  Pages pages_;
  uint64_t territory_end_ = 0;
};

TEST_F(ExpansionTest, NeedsATerritoryOfItsOwnSpace) {
  EXPECT_TRUE(Plan(kPage).needs_territory());
  AddTerritory(8, Space::kSmall);
  EXPECT_TRUE(Plan(kPage).needs_territory());
  AddTerritory(8);
  EXPECT_FALSE(Plan(kPage).needs_territory());
}

TEST_F(ExpansionTest, NeedsATerritoryThatIsLargeEnough) {
  AddTerritory(8);
  EXPECT_FALSE(Plan(8 * kPage).needs_territory());
  EXPECT_TRUE(Plan(8 * kPage + 512).needs_territory());
}

TEST_F(ExpansionTest, NeedsATerritoryForARequestThatNoAddressEnds) {
  AddTerritory(8);
  EXPECT_TRUE(Plan(UINT64_MAX - kPage + 1).needs_territory()) << "a hole's beginning and the request wrap around";
  Map(0);
  EXPECT_TRUE(Plan(UINT64_MAX - kPage + 1).needs_territory()) << "a free page's and the request";
}

TEST_F(ExpansionTest, MakesPagesUpToTheLargestSize) {
  AddTerritory(16);
  const Expansion plan = Plan(5 * kPage + 512);
  EXPECT_EQ(InPages(plan.made), (Numbers{{0, 4}, {4, 2}}));
  EXPECT_EQ(InPages(plan.arriving), (Numbers{{0, 6}}));
  EXPECT_EQ(plan.made_bytes(), 6 * kPage);
  EXPECT_EQ(plan.moved_bytes(), 0u);
}

TEST_F(ExpansionTest, MakesTheSameMemoryInSmallerPages) {
  Lay(9, {{4, 1}});
  Expansion plan = Plan(9 * kPage);
  EXPECT_EQ(InPages(plan.made), (Numbers{{0, 4}, {5, 4}}));
  CutPages(3 * kPage, plan);
  EXPECT_EQ(InPages(plan.made), (Numbers{{0, 3}, {3, 1}, {5, 3}, {8, 1}}));
  EXPECT_EQ(InPages(plan.arriving), (Numbers{{0, 4}, {5, 4}}));
  CutPages(4 * kPage, plan);
  EXPECT_EQ(InPages(plan.made), (Numbers{{0, 4}, {5, 4}}));
}

TEST_F(ExpansionTest, MakesOnlyWhatIsMissingBehindFreeMemory) {
  Lay(16, {{0, 2}});
  EXPECT_EQ(InPages(Plan(3 * kPage).made), (Numbers{{2, 1}}));
  Take(At(0), kPage);
  EXPECT_EQ(InPages(Plan(3 * kPage).made), (Numbers{{2, 2}}));
}

TEST_F(ExpansionTest, FillsEveryHoleBetweenFreePages) {
  Lay(16, {{0, 1}, {2, 1}, {5, 1}});
  const Expansion plan = Plan(6 * kPage, Donors::kNone);
  EXPECT_EQ(InPages(plan.arriving), (Numbers{{1, 1}, {3, 2}}));
  EXPECT_EQ(plan.made_bytes(), 3 * kPage);
}

TEST_F(ExpansionTest, TakesTheAddressesThatLackTheLeast) {
  Lay(16, {{0, 1}, {8, 3}});
  EXPECT_EQ(InPages(Plan(4 * kPage, Donors::kNone).made), (Numbers{{11, 1}}));
}

TEST_F(ExpansionTest, LeavesOutAddressesThatALiveBlockInterrupts) {
  Lay(16, {{0, 4}});
  Take(At(0), 3 * kPage);
  Map(4);
  Take(At(3), 2 * kPage);
  heap_.Close(heap_.Find(At(0)), 0);
  EXPECT_EQ(InPages(Plan(4 * kPage, Donors::kNone).made), (Numbers{{5, 4}}))
      << "the three free pages lie before a live block";
}

// A live block begins behind the free memory, so the missing pages come before it.
class BelowFreeMemory : public ExpansionTest {
 protected:
  void Lay(uint64_t free_from) {
    ExpansionTest::Lay(64, {{free_from, 4}, {free_from + 4, 1}});
    heap_.Convert({At(free_from + 4), kPage}, BlockState::kFree, BlockState::kLeaving);
  }
};

TEST_F(BelowFreeMemory, MissingMemoryIsMade) {
  Lay(8);
  const Expansion plan = Plan(6 * kPage);
  EXPECT_EQ(InPages(plan.made), (Numbers{{6, 2}}));
  EXPECT_EQ(InPages(plan.arriving), (Numbers{{6, 2}}));
  EXPECT_EQ(InPages(Plan(6 * kPage - 512).made), (Numbers{{6, 2}})) << "in whole units";
}

TEST_F(BelowFreeMemory, TheLastPageThatMovesMayReachFurtherDown) {
  Lay(8);
  Map(40, 3);
  Take(At(40), 3 * kPage);
  Map(32, 3);
  const Expansion plan = Plan(6 * kPage);
  EXPECT_EQ(Moves(plan), (Triples{{32, 5, 3}}));
  EXPECT_EQ(InPages(plan.arriving), (Numbers{{5, 3}}));
}

// Pages that fill a whole hole might merge with memory below it that others used.
TEST_F(BelowFreeMemory, APartOfTheHoleStays) {
  Lay(3);
  EXPECT_EQ(InPages(Plan(6 * kPage).made), (Numbers{{1, 2}}));
  Map(32, 3);
  EXPECT_TRUE(Plan(6 * kPage).moves.empty()) << "a page would fill it";
  EXPECT_EQ(InPages(Plan(7 * kPage, Donors::kNone).made), (Numbers{{35, 4}})) << "behind other free memory";
}

TEST_F(ExpansionTest, CountsOnMemoryThatOnlyTheRequestsStreamUses) {
  Lay(16, {{0, 2}});
  Use(0, kStream);
  EXPECT_EQ(InPages(Plan(4 * kPage).made), (Numbers{{2, 2}}));
  Use(0, kOther);
  EXPECT_EQ(InPages(Plan(4 * kPage).made), (Numbers{{2, 4}}));
}

TEST_F(ExpansionTest, MovesNoPageWhereNoneMay) {
  Lay(16, {{0, 2}, {8, 1}});
  const Expansion plan = Plan(4 * kPage, Donors::kNone);
  EXPECT_TRUE(plan.moves.empty());
  EXPECT_EQ(InPages(plan.made), (Numbers{{2, 2}}));
}

TEST_F(ExpansionTest, MovesFreePagesBeforeItMakesNewOnes) {
  Lay(16, {{0, 2}, {8, 1}});
  const Expansion plan = Plan(4 * kPage);
  EXPECT_EQ(Moves(plan), (Triples{{8, 2, 1}}));
  EXPECT_EQ(InPages(plan.made), (Numbers{{3, 1}}));
  EXPECT_EQ(InPages(plan.arriving), (Numbers{{2, 2}}));
}

TEST_F(ExpansionTest, MovesTheLargestPagesThatFit) {
  Lay(80, {{0, 4}, {40, 1}, {50, 2}, {60, 3}});
  EXPECT_EQ(Moves(Plan(7 * kPage)), (Triples{{60, 4, 3}}));
  EXPECT_EQ(Moves(Plan(9 * kPage)), (Triples{{60, 4, 3}, {50, 7, 2}}));
}

TEST_F(ExpansionTest, LetsTheLastPageReachBeyondTheRequest) {
  Lay(32, {{0, 4}, {16, 3}});
  const Expansion plan = Plan(6 * kPage);
  EXPECT_EQ(Moves(plan), (Triples{{16, 4, 3}}));
  EXPECT_EQ(InPages(plan.arriving), (Numbers{{4, 3}}));
}

TEST_F(ExpansionTest, TakesTheHighestOfPagesThatAreAlike) {
  Lay(256, {{0, 4}, {64, 3}, {128, 3}, {192, 3}});
  EXPECT_EQ(Moves(Plan(10 * kPage)), (Triples{{128, 4, 3}, {192, 7, 3}}));
  EXPECT_EQ(Moves(Plan(6 * kPage)), (Triples{{192, 4, 3}})) << "also where it is larger than what is left";
}

TEST_F(ExpansionTest, KeepsPagesThatAreAlikeInTheirRows) {
  Lay(256, {{0, 6}, {64, 2}, {66, 2}, {68, 1}, {128, 2}, {130, 2}, {160, 1}});
  const Expansion plan = Plan(16 * kPage);
  EXPECT_EQ(Moves(plan), (Triples{{64, 6, 2}, {66, 8, 2}, {128, 10, 2}, {130, 12, 2}, {68, 14, 1}, {160, 15, 1}}));
  constexpr Address kNoLimit = UINT64_MAX;
  EXPECT_EQ(plan.EndOfRow(0, kNoLimit), 2u);
  EXPECT_EQ(plan.EndOfRow(0, At(66)), 1u) << "the other page is beyond the limit";
  EXPECT_EQ(plan.EndOfRow(1, kNoLimit), 2u);
  EXPECT_EQ(plan.EndOfRow(2, kNoLimit), 4u);
  EXPECT_EQ(plan.EndOfRow(4, kNoLimit), 5u);
  EXPECT_EQ(plan.EndOfRow(5, kNoLimit), 6u);
}

TEST_F(ExpansionTest, TakesTheFirstOfAddressesThatAreAlike) {
  AddTerritory(8);
  AddTerritory(8);
  EXPECT_EQ(InPages(Plan(kPage).made), (Numbers{{0, 1}})) << "of holes";
  Map(1, 2);
  Map(5, 2);
  EXPECT_EQ(InPages(Plan(3 * kPage, Donors::kNone).made), (Numbers{{3, 1}})) << "of free memory";
}

TEST_F(ExpansionTest, MovesAPageThatLiesJustBehindTheRequest) {
  Lay(16, {{0, 2}, {4, 1}});
  EXPECT_EQ(Moves(Plan(4 * kPage)), (Triples{{4, 2, 1}}));
}

TEST_F(ExpansionTest, TakesWhatFitsAndLetsTheLastReachBeyond) {
  Lay(256, {{0, 4}, {64, 4}, {128, 3}, {192, 1}});
  const Expansion plan = Plan(10 * kPage);
  EXPECT_EQ(Moves(plan), (Triples{{64, 4, 4}, {192, 8, 1}, {128, 9, 3}}));
  EXPECT_EQ(InPages(plan.arriving), (Numbers{{4, 8}}));
}

TEST_F(ExpansionTest, LetsTheLastPageReachToTheTerritorysEnd) {
  AddTerritory(7);
  Lay(8, {{0, 4}, {8, 3}});
  EXPECT_EQ(Moves(Plan(6 * kPage)), (Triples{{8, 4, 3}}));
}

TEST_F(ExpansionTest, MovesNothingBehindHolesThatAreFull) {
  Lay(256, {{0, 1}, {3, 1}, {6, 1}, {64, 3}, {128, 3}, {192, 1}});
  const Expansion plan = Plan(10 * kPage);
  EXPECT_EQ(Moves(plan), (Triples{{192, 1, 1}, {64, 7, 3}}));
  EXPECT_EQ(InPages(plan.made), (Numbers{{2, 1}, {4, 2}}));
}

TEST_F(ExpansionTest, PutsTheLargestPagesFirstWhateverTheyLeaveBehind) {
  Lay(256, {{128, 1}, {129, 2}});
  Take(At(128), kMiB);
  Map(0, 4);
  Map(64);
  EXPECT_EQ(Moves(Plan(7 * kPage, Donors::kAll)), (Triples{{129, 4, 2}, {64, 6, 1}}));
}

TEST_F(ExpansionTest, MakesAPageWhereALargerOneFindsNoRoom) {
  Lay(7, {{0, 3}, {4, 3}});
  Take(At(0), 3 * kPage);
  Take(At(4), 3 * kPage);
  heap_.Close(heap_.Find(At(0)), 0);
  Lay(8, {{8, 2}});
  Take(At(7 + 1), 2 * kPage)->uses = {{kStream, kNoFence, kNoMoment}};
  EXPECT_EQ(InPages(Plan(4 * kPage).made), (Numbers{{3, 1}}));
  heap_.Close(heap_.Find(At(8)), 0);
  heap_.ChangeUses(heap_.Find(At(8)), [](engine::Uses& uses) { uses.clear(); });
  const Expansion plan = Plan(4 * kPage);
  EXPECT_TRUE(plan.moves.empty());
  EXPECT_EQ(InPages(plan.made), (Numbers{{3, 1}}));
}

// A free page beside the free rest of a large page in use: if the free page moved, the rest would be a splinter.
struct Splinter {
  std::string name;
  uint64_t pages;
  uint64_t bytes;
  bool moves;
};

class Splinters : public ExpansionTest, public ::testing::WithParamInterface<Splinter> {
 protected:
  // For a request that does not fit around the free page.
  bool Moves(Donors donors) const { return !Plan(8 * kPage, donors).moves.empty(); }
};

TEST_P(Splinters, KeepAPageFromMovingWhereTheyAreMuch) {
  const auto& [name, pages, bytes, moves] = GetParam();
  Lay(pages, {{0, pages - 1}, {pages - 1, 1}});
  AddTerritory(8);
  Take(At(0), (pages - 1) * kPage - bytes);
  EXPECT_EQ(Moves(Donors::kWhole), moves);
  EXPECT_TRUE(Moves(Donors::kAll));
}

INSTANTIATE_TEST_SUITE_P(Shares, Splinters,
                         ::testing::Values(Splinter{"LittleOfThePoolAndOfWhatMoves", 600, 2 * kPage, true},
                                           Splinter{"MuchOfThePool", 600, 2 * kPage + 512, false},
                                           Splinter{"ThreeTimesWhatMoves", 1200, 3 * kPage, true},
                                           Splinter{"MuchOfWhatMoves", 1200, 3 * kPage + 512, false}),
                         [](const auto& splinter) { return splinter.param.name; });

TEST_F(ExpansionTest, MovesPagesWithTheFewestSplintersFirst) {
  Lay(32, {{0, 4}, {8, 1}, {9, 1}, {12, 1}});
  Take(At(12), kPage);
  Take(At(8), kMiB);
  heap_.Close(heap_.Find(At(12)), 0);
  EXPECT_EQ(Moves(Plan(5 * kPage, Donors::kAll)), (Triples{{12, 4, 1}}));
  EXPECT_EQ(Moves(Plan(6 * kPage, Donors::kAll)), (Triples{{9, 4, 1}, {12, 5, 1}}));
  EXPECT_EQ(Moves(Plan(6 * kPage, Donors::kWhole)), (Triples{{12, 4, 1}})) << "half a page is much of so small a pool";
}

TEST_F(ExpansionTest, TakesPagesOfTheOtherSpaceUnderPressureAlone) {
  AddTerritory(8, Space::kSmall);
  Lay(8, {{0, 1}});
  EXPECT_TRUE(Plan(kPage).moves.empty());
  EXPECT_EQ(Moves(Plan(kPage, Donors::kAll)), (Triples{{0, 8, 1}}));
  EXPECT_TRUE(Plan(2 * kPage, Donors::kAll, Space::kSmall).moves.empty()) << "it lies where it is wanted";
}

TEST_F(ExpansionTest, MovesNoPageThatAStreamMayStillUseAndTellsOfIt) {
  Lay(16, {{0, 4}, {8, 2}});
  Use(8, kOther);
  Plan(6 * kPage);
  EXPECT_TRUE(Plan(6 * kPage).moves.empty());
  EXPECT_EQ(Plan(6 * kPage).busy_bytes, 2 * kPage);
  EXPECT_EQ(Plan(6 * kPage, Donors::kNone).busy_bytes, 0u);
  Use(8, kStream);
  EXPECT_TRUE(Plan(6 * kPage).moves.empty()) << "mapped elsewhere under its own stream's work";
}

TEST_F(ExpansionTest, MovesNoPageThatALiveBlockLiesOn) {
  Lay(16, {{0, 4}, {8, 2}});
  Take(At(8), 512);
  EXPECT_TRUE(Plan(6 * kPage, Donors::kAll).moves.empty());
  Map(12, 1);
  EXPECT_EQ(Moves(Plan(6 * kPage, Donors::kAll)), (Triples{{12, 4, 1}}));
}

TEST_F(ExpansionTest, LeavesAGraphsMemoryAlone) {
  Lay(16, {{0, 4}, {8, 2}});
  heap_.Close(Take(At(8), 2 * kPage, 5), 0);
  Take(At(0), 4 * kPage);
  const Expansion plan = Plan(4 * kPage, Donors::kAll);
  EXPECT_TRUE(plan.moves.empty());
  EXPECT_EQ(InPages(plan.made), (Numbers{{10, 4}})) << "nor does the request begin in it";
  EXPECT_EQ(plan.busy_bytes, 0u);
}

using ExpansionDeathTest = ExpansionTest;

TEST_F(ExpansionDeathTest, AbortsWhereFreeMemoryWouldServe) {
  Lay(16, {{0, 4}});
  EXPECT_DEATH(Plan(kPage), "serves already");
}

}  // namespace
}  // namespace commpool::internal::engine
