// The model of NCCL's places against the emulator's own, and the orders that it finds, carried out there.
#include "src/library/registration/window_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "src/emulator/nccl/window_places.h"
#include "src/library/base/bytes.h"

namespace commpool::internal::testing {
namespace {

using emulated_nccl::WindowPlaceInRange;
using emulated_nccl::WindowPlaces;

constexpr uint64_t kUnit = 2 * kMiB;

WindowSpot SpotOf(const WindowPlaceInRange& place) { return {place.offset, place.record}; }

// The emulator's places and the model of them, told the same.
class Communicator {
 public:
  WindowSpot Register(int window, uint64_t bytes) {
    const WindowPlaceInRange place = *nccl_.Take(bytes);
    layout_.Learn(bytes, SpotOf(place));
    places_[window] = place;
    return SpotOf(place);
  }
  void End(int window) {
    nccl_.Free(places_.at(window));
    layout_.Remove(SpotOf(places_.at(window)));
    places_.erase(window);
  }
  // NCCL's own, or another program's: the model does not hear of it.
  WindowPlaceInRange RegisterStranger(uint64_t bytes) { return *nccl_.Take(bytes); }
  void EndStranger(const WindowPlaceInRange& place) { nccl_.Free(place); }

  WindowSpot Next(uint64_t bytes) const { return layout_.Next(bytes); }

  // All that are registered, ended and registered in the order that the model finds: how many came back elsewhere than
  // they were. Nothing where it finds none.
  std::optional<size_t> SleepAndWake() {
    const std::map<int, WindowPlaceInRange> before = places_;
    std::vector<int> names;
    std::vector<PlacedWindow> windows;
    for (const auto& [name, place] : before) {
      names.push_back(name);
      windows.push_back({place.bytes, SpotOf(place)});
      End(name);
    }
    const std::optional<std::vector<WindowStep>> steps = FindWindowOrder(layout_, windows);
    if (!steps) return std::nullopt;
    for (const auto& [act, window] : *steps) {
      if (act == WindowStep::Act::kEnd) {
        End(names[window]);
      } else {
        Register(names[window], windows[window].bytes);
      }
    }
    return std::count_if(before.begin(), before.end(),
                         [&](const auto& window) { return SpotOf(places_.at(window.first)) != SpotOf(window.second); });
  }
  bool ComesBack() { return SleepAndWake() == size_t{0}; }

 private:
  WindowPlaces nccl_{uint64_t{1} << 40, kUnit};
  WindowLayout layout_;
  std::map<int, WindowPlaceInRange> places_;
};

TEST(WindowLayout, TakesTheLowestGapAndTheLowestRecord) {
  WindowLayout layout;
  const WindowSpot first = layout.Add(2 * kUnit);
  layout.Add(kUnit);
  EXPECT_EQ(first, (WindowSpot{0, 0}));
  layout.Remove(first);
  EXPECT_EQ(layout.Add(3 * kUnit), (WindowSpot{3 * kUnit, 0})) << "the gap is too small, the record is free";
  EXPECT_EQ(layout.Add(kUnit), (WindowSpot{0, 2}));
}

TEST(WindowLayout, LearnsOfWindowsThatNobodyTellsOf) {
  Communicator communicator;
  communicator.RegisterStranger(3 * kUnit);
  EXPECT_EQ(communicator.Register(1, kUnit), (WindowSpot{3 * kUnit, 1}));
  const WindowPlaceInRange between = communicator.RegisterStranger(kUnit);
  EXPECT_EQ(communicator.Register(2, kUnit), (WindowSpot{5 * kUnit, 3}));
  EXPECT_EQ(communicator.Next(kUnit), (WindowSpot{6 * kUnit, 4}));
  communicator.EndStranger(between);
  EXPECT_EQ(communicator.Register(3, kUnit), (WindowSpot{4 * kUnit, 2}));
  EXPECT_EQ(communicator.Next(kUnit), (WindowSpot{6 * kUnit, 4}));
}

TEST(WindowOrder, OfWindowsThatNeverEndedIsTheFirstOne) {
  Communicator communicator;
  communicator.RegisterStranger(kUnit);
  for (int window = 0; window < 100; ++window)
    communicator.Register(window, static_cast<uint64_t>(1 + window % 3) * kUnit);
  EXPECT_TRUE(communicator.ComesBack());
}

// A(2), B(1); A ends; C(1) takes its place, D(2) comes last: one after the other B would come into C's gap.
TEST(WindowOrder, FillsAGapWithAWindowThatEndsAgain) {
  Communicator communicator;
  communicator.RegisterStranger(kUnit);
  communicator.Register('A', 2 * kUnit);
  communicator.Register('B', kUnit);
  communicator.End('A');
  communicator.Register('C', kUnit);
  communicator.Register('D', 2 * kUnit);
  EXPECT_TRUE(communicator.ComesBack());
}

TEST(WindowOrder, IsNotFoundWhereNothingFillsTheGap) {
  Communicator communicator;
  communicator.Register('A', kUnit);
  communicator.Register('B', 2 * kUnit);
  communicator.End('A');
  EXPECT_FALSE(communicator.ComesBack());
}

TEST(WindowOrder, KeepsOffAStrangersPlace) {
  Communicator communicator;
  communicator.Register('A', kUnit);
  communicator.RegisterStranger(kUnit);
  communicator.Register('B', 2 * kUnit);
  EXPECT_TRUE(communicator.ComesBack());
}

// As programs do it: windows come, some end, all sleep again and again. What the model says holds on the emulator.
TEST(WindowOrder, BringsAllBackWhereverItIsFound) {
  size_t found = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](uint32_t bound) { return random() % bound; };
    Communicator communicator;
    std::vector<int> registered;
    communicator.RegisterStranger((1 + below(4)) * kUnit);
    for (int call = 0; call < 12; ++call) {
      if (!registered.empty() && below(4) == 0) {
        const auto ended = registered.begin() + below(static_cast<uint32_t>(registered.size()));
        communicator.End(*ended);
        registered.erase(ended);
        continue;
      }
      const uint64_t bytes = (1 + below(4)) * kUnit;
      const WindowSpot expected = communicator.Next(bytes);
      if (registered.empty()) {
        communicator.Register(call, bytes);
      } else {
        ASSERT_EQ(communicator.Register(call, bytes), expected) << "seed " << seed;
      }
      registered.push_back(call);
    }
    for (int round = 0; round < 3; ++round) {
      const std::optional<size_t> moved = communicator.SleepAndWake();
      if (!moved) break;
      ASSERT_EQ(*moved, 0u) << "seed " << seed;
      ++found;
    }
  }
  EXPECT_GT(found, 120u) << "in nearly half of all histories";
}

}  // namespace
}  // namespace commpool::internal::testing
