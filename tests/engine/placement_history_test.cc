// Which blocks a search would place again where they lie.
#include "src/library/engine/placement_history.h"

#include <gtest/gtest.h>

#include <vector>

namespace commpool::internal::engine {
namespace {

// Each round places a block that stays, and one that is freed after another was placed: the other is outdated then.
struct Round {
  Placement staying = 0;
  Placement outdated = 0;
};

std::vector<Round> Play(PlacementHistory& history, int rounds) {
  std::vector<Round> played;
  for (int round = 0; round < rounds; ++round) {
    const Placement staying = history.Note();
    const Placement freed = history.Note();
    played.push_back({staying, history.Note()});
    history.NoteFree(freed);
  }
  return played;
}

TEST(PlacementHistory, OutdatesWhatWasPlacedAfterABlockThatIsFreed) {
  PlacementHistory history;
  for (const Round& round : Play(history, 20)) {
    EXPECT_TRUE(history.IsCurrent(round.staying));
    EXPECT_FALSE(history.IsCurrent(round.outdated));
  }
}

TEST(PlacementHistory, OutdatesEverythingWhereMemoryComesFromElsewhere) {
  PlacementHistory history;
  const std::vector<Round> rounds = Play(history, 3);
  history.NoteOther();
  for (const Round& round : rounds) EXPECT_FALSE(history.IsCurrent(round.staying));
  EXPECT_TRUE(history.IsCurrent(history.Note()));
}

// The old ones may be outdated without need. That costs a search; the contrary would place a block elsewhere.
TEST(PlacementHistory, ForgetsNoOutdatedPlacementInALongHistory) {
  PlacementHistory history;
  const std::vector<Round> rounds = Play(history, 100);
  for (const Round& round : rounds) EXPECT_FALSE(history.IsCurrent(round.outdated)) << round.outdated;
  for (size_t round = rounds.size() - 20; round < rounds.size(); ++round) {
    EXPECT_TRUE(history.IsCurrent(rounds[round].staying)) << round;
  }
}

}  // namespace
}  // namespace commpool::internal::engine
