// Other allocators of the process: which of them the library asks, for how much, and when a program can remove them.
#include "src/library/pool/shared/memory_holders.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace commpool::internal {
namespace {

// Gives what it has, and records the requests.
struct Giver {
  uint64_t has = 0;
  std::vector<uint64_t> asked = {};

  static uint64_t Cached(int, void* context) { return static_cast<Giver*>(context)->has; }
  static uint64_t Release(int, uint64_t bytes, void* context) {
    auto* const giver = static_cast<Giver*>(context);
    giver->asked.push_back(bytes);
    return std::exchange(giver->has, 0);
  }

  commpool_holder_options Options(const char* name = "giver") {
    return {sizeof(commpool_holder_options), name, Cached, Release, this};
  }
};

TEST(MemoryHolders, AreAskedUntilEnoughIsGiven) {
  MemoryHolders holders;
  Giver first{.has = 30};
  Giver second{.has = 50};
  Giver third{.has = 100};
  for (Giver* giver : {&first, &second, &third}) holders.Add(giver->Options());
  EXPECT_EQ(holders.Release(0, 80), 80u);
  EXPECT_EQ(first.asked, std::vector<uint64_t>{80});
  EXPECT_EQ(second.asked, std::vector<uint64_t>{50});
  EXPECT_TRUE(third.asked.empty());
}

TEST(MemoryHolders, ThatGiveMoreThanAskedCountForWhatWasAsked) {
  MemoryHolders holders;
  Giver first{.has = 10};
  Giver second{.has = UINT64_MAX};
  holders.Add(first.Options());
  holders.Add(second.Options());
  EXPECT_EQ(holders.Release(0, 80), 80u);
}

TEST(MemoryHolders, AreToldTheDevice) {
  MemoryHolders holders;
  int device = -1;
  commpool_holder_options options = {sizeof(options), "device", nullptr, nullptr, &device};
  options.release = [](int asked, uint64_t, void* context) -> uint64_t {
    *static_cast<int*>(context) = asked;
    return 0;
  };
  holders.Add(options);
  EXPECT_EQ(holders.Release(3, 1), 0u);
  EXPECT_EQ(device, 3);
}

TEST(MemoryHolders, DescribeThemselves) {
  MemoryHolders holders;
  Giver giver{.has = 7};
  std::string name = "framework";
  holders.Add(giver.Options(name.c_str()));
  name = "changed";
  holders.Add({sizeof(commpool_holder_options), nullptr, nullptr, nullptr, nullptr});
  const std::vector<MemoryHolders::Held> held = holders.Describe(0);
  ASSERT_EQ(held.size(), 2u);
  EXPECT_EQ(held[0].name, "framework");
  EXPECT_EQ(held[0].cached_bytes, 7u);
  EXPECT_EQ(held[1].name, "other");
  EXPECT_EQ(held[1].cached_bytes, 0u);
  EXPECT_EQ(holders.Release(0, 7), 7u) << "one without functions gives nothing";
}

TEST(MemoryHolders, ThatThrowGiveNothingAndDoNotStopOthers) {
  MemoryHolders holders;
  commpool_holder_options options = {sizeof(options), "thrower", nullptr, nullptr, nullptr};
  options.cached_bytes = [](int, void*) -> uint64_t { throw std::runtime_error("cached"); };
  options.release = [](int, uint64_t, void*) -> uint64_t { throw std::runtime_error("release"); };
  const commpool_holder thrower = holders.Add(options);
  Giver giver{.has = 5};
  holders.Add(giver.Options());
  EXPECT_EQ(holders.Describe(0).size(), 2u);
  EXPECT_EQ(holders.Release(0, 5), 5u);
  EXPECT_TRUE(holders.Remove(thrower).ok()) << "no call of its functions is left behind";
}

TEST(MemoryHolders, ThatAreRemovedAreNotAsked) {
  MemoryHolders holders;
  Giver giver{.has = 5};
  const commpool_holder handle = holders.Add(giver.Options());
  EXPECT_TRUE(holders.Remove(handle).ok());
  EXPECT_EQ(holders.Release(0, 5), 0u);
  EXPECT_TRUE(holders.Describe(0).empty());
  EXPECT_EQ(holders.Remove(handle).code(), StatusCode::kNotFound);
  EXPECT_EQ(holders.Remove(0).code(), StatusCode::kNotFound);
  EXPECT_NE(holders.Add(giver.Options()), handle) << "numbers are never reused";
}

// Removes a holder from inside a function of a holder.
struct Remover {
  MemoryHolders& holders;
  commpool_holder victim = 0;
  Status status = {};

  commpool_holder_options Options() {
    commpool_holder_options options = {sizeof(options), "remover", nullptr, nullptr, this};
    options.release = [](int, uint64_t, void* context) -> uint64_t {
      auto* const remover = static_cast<Remover*>(context);
      remover->status = remover->holders.Remove(remover->victim);
      return 0;
    };
    return options;
  }
};

TEST(MemoryHolders, ThatAnotherOneRemovesBeforeTheirTurnAreNotAsked) {
  MemoryHolders holders;
  Remover remover{holders};
  Giver giver{.has = 5};
  holders.Add(remover.Options());
  remover.victim = holders.Add(giver.Options());
  EXPECT_EQ(holders.Release(0, 5), 0u);
  EXPECT_TRUE(remover.status.ok()) << remover.status.message();
  EXPECT_TRUE(giver.asked.empty());
}

TEST(MemoryHolders, AreRemovedOnceTheirFunctionsHaveEndedOnOtherThreads) {
  struct Slow {
    std::promise<void> entered;
    std::promise<void> leave;
    std::atomic<bool> ended{false};
  } slow;
  MemoryHolders holders;
  commpool_holder_options options = {sizeof(options), "slow", nullptr, nullptr, &slow};
  options.release = [](int, uint64_t, void* context) -> uint64_t {
    auto* const mine = static_cast<Slow*>(context);
    mine->entered.set_value();
    mine->leave.get_future().wait();
    mine->ended = true;
    return 0;
  };
  const commpool_holder handle = holders.Add(options);
  std::thread asking([&] { holders.Release(0, 1); });
  slow.entered.get_future().wait();
  std::thread removing([&] {
    EXPECT_TRUE(holders.Remove(handle).ok());
    EXPECT_TRUE(slow.ended) << "removed while its function ran";
  });
  // It is off the list, so its removal has begun and waits.
  while (!holders.Describe(0).empty()) std::this_thread::yield();
  slow.leave.set_value();
  removing.join();
  asking.join();
}

}  // namespace
}  // namespace commpool::internal
