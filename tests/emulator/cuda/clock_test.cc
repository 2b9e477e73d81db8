#include "src/emulator/cuda/clock.h"

#include <gtest/gtest.h>

namespace commpool::internal::emulator {
namespace {

Clock MakeClock(const std::vector<Moment>& moments) {
  Clock clock;
  for (const Moment& moment : moments) clock.Set(moment);
  return clock;
}

TEST(Clock, CoversNothingAtFirst) {
  const Clock clock;
  EXPECT_TRUE(clock.empty());
  EXPECT_FALSE(clock.Covers(Moment{7, 1}));
  EXPECT_TRUE(clock.Covers(Clock())) << "which asks for nothing";
}

TEST(Clock, CoversAMomentAndWhatCameBeforeIt) {
  const Clock clock = MakeClock({{7, 3}});
  EXPECT_TRUE(clock.Covers(Moment{7, 3}));
  EXPECT_TRUE(clock.Covers(Moment{7, 2}));
  EXPECT_FALSE(clock.Covers(Moment{7, 4}));
  EXPECT_FALSE(clock.Covers(Moment{8, 1}));
}

TEST(Clock, JoinsToWhatEitherKnew) {
  Clock clock = MakeClock({{9, 1}, {3, 5}, {7, 2}});
  clock.Join(MakeClock({{1, 4}, {3, 2}, {7, 6}, {12, 8}}));
  for (const Moment moment : {Moment{1, 4}, Moment{3, 5}, Moment{7, 6}, Moment{9, 1}, Moment{12, 8}}) {
    EXPECT_EQ(clock.Of(moment.component), moment.count) << moment.component;
  }
}

TEST(Clock, CoversAnotherWhereItCoversAllOfIt) {
  const Clock large = MakeClock({{1, 4}, {3, 5}});
  EXPECT_TRUE(large.Covers(MakeClock({{3, 5}})));
  EXPECT_FALSE(large.Covers(MakeClock({{3, 5}, {4, 1}})));
  EXPECT_FALSE(MakeClock({{3, 5}}).Covers(large));
}

TEST(Clock, TravelsAsWords) {
  const Clock clock = MakeClock({{UINT64_MAX, 1}, {0, 5}});
  const std::vector<uint64_t> words = clock.ToWords();
  const Clock arrived = Clock::FromWords(words.data(), words.size());
  EXPECT_TRUE(arrived.Covers(clock));
  EXPECT_TRUE(clock.Covers(arrived));
}

TEST(Clock, ReadsWordsOfAnyContent) {
  const std::vector<uint64_t> words = {9, 2, 3, 0, 1, 4, 9, 1, 5};  // unsorted, empty, twice, half
  const Clock clock = Clock::FromWords(words.data(), words.size());
  EXPECT_EQ(clock.ToWords(), (std::vector<uint64_t>{1, 4, 9, 2}));
  EXPECT_TRUE(Clock::FromWords(nullptr, 0).empty());
}

}  // namespace
}  // namespace commpool::internal::emulator
