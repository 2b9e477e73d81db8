// Pointer and communicator -> window, pure: handles here are numbers that nobody calls.
#include "src/library/registration/window_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

namespace commpool::internal {
namespace {

constexpr uint64_t kPage = uint64_t{2} << 20;
constexpr CUdeviceptr kBase = CUdeviceptr{0x7f00} << 32;

ncclComm_t CommunicatorOf(uint64_t number) { return reinterpret_cast<ncclComm_t>(number * 4096); }
ncclWindow_t WindowOf(uint64_t number) { return reinterpret_cast<ncclWindow_t>(number); }

// A window whose handle says which address and which communicator it is of.
RegisteredWindow MakeWindow(uint64_t communicator, CUdeviceptr address, uint64_t bytes) {
  return {CommunicatorOf(communicator), address, bytes, WindowOf(address + communicator)};
}

TEST(WindowIndex, IsEmptyAtFirst) {
  const WindowIndex index;
  EXPECT_FALSE(index.Find(CommunicatorOf(1), kBase));
  EXPECT_FALSE(index.Find(nullptr, 0));
}

TEST(WindowIndex, FindsWhatLiesInsideAndNothingElse) {
  WindowIndex index;
  index.Add(MakeWindow(1, kBase, 3 * kPage));
  for (const uint64_t offset : {uint64_t{0}, uint64_t{1}, kPage, 3 * kPage - 1}) {
    const std::optional<WindowPlace> place = index.Find(CommunicatorOf(1), kBase + offset);
    ASSERT_TRUE(place) << offset;
    EXPECT_EQ(place->window, WindowOf(kBase + 1));
    EXPECT_EQ(place->offset, offset);
  }
  EXPECT_FALSE(index.Find(CommunicatorOf(1), kBase - 1));
  EXPECT_FALSE(index.Find(CommunicatorOf(1), kBase + 3 * kPage));
  EXPECT_FALSE(index.Find(CommunicatorOf(2), kBase));
  EXPECT_FALSE(index.Find(nullptr, kBase));
  EXPECT_FALSE(index.Find(CommunicatorOf(1), 0));
  EXPECT_FALSE(index.Find(CommunicatorOf(1), UINT64_MAX));
}

TEST(WindowIndex, TellsTheCommunicatorsOfOneSegmentApart) {
  WindowIndex index;
  for (uint64_t communicator = 1; communicator <= 4; ++communicator) index.Add(MakeWindow(communicator, kBase, kPage));
  for (uint64_t communicator = 1; communicator <= 4; ++communicator) {
    EXPECT_EQ(index.Find(CommunicatorOf(communicator), kBase + 7)->window, WindowOf(kBase + communicator));
  }
  index.Remove(CommunicatorOf(2), kBase);
  EXPECT_FALSE(index.Find(CommunicatorOf(2), kBase));
  EXPECT_TRUE(index.Find(CommunicatorOf(3), kBase));
}

TEST(WindowIndex, RemovesOnlyWindowsThatItHas) {
  WindowIndex index;
  index.Add(MakeWindow(1, kBase, 2 * kPage));
  index.Remove(CommunicatorOf(1), kBase + kPage);
  index.Remove(CommunicatorOf(2), kBase);
  EXPECT_TRUE(index.Find(CommunicatorOf(1), kBase + kPage));
  index.Remove(CommunicatorOf(1), kBase);
  index.Remove(CommunicatorOf(1), kBase);
  EXPECT_FALSE(index.Find(CommunicatorOf(1), kBase));
}

// Sizes from one page of 64 KiB to 80 GiB side by side, at any multiple of 64 KiB: against a plain list.
TEST(WindowIndex, AgreesWithAListOverWindowsOfAllSizes) {
  constexpr uint64_t kUnit = 64 << 10;
  std::mt19937_64 random(7);
  WindowIndex index;
  std::vector<RegisteredWindow> list;
  CUdeviceptr next = kBase;
  for (int round = 0; round < 600; ++round) {
    if (round % 3 == 2) {
      const size_t victim = random() % list.size();
      index.Remove(list[victim].communicator, list[victim].address);
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(victim));
    } else {
      const uint64_t bytes = round == 100 ? uint64_t{80} << 30 : kUnit << (random() % 8);
      list.push_back(MakeWindow(1 + random() % 4, next, bytes));
      index.Add(list.back());
      next += bytes + kUnit * (random() % 3);
    }
    for (int probe = 0; probe < 20; ++probe) {
      const RegisteredWindow& near = list[random() % list.size()];
      const CUdeviceptr address = near.address + near.bytes / 20 * static_cast<uint64_t>(probe) * 11 / 10;
      const ncclComm_t communicator = probe % 4 == 0 ? CommunicatorOf(1) : near.communicator;
      const auto expected = std::find_if(list.begin(), list.end(), [&](const RegisteredWindow& window) {
        return window.communicator == communicator && address - window.address < window.bytes;
      });
      const std::optional<WindowPlace> found = index.Find(communicator, address);
      ASSERT_EQ(found.has_value(), expected != list.end()) << round;
      if (!found) continue;
      ASSERT_EQ(found->window, expected->window);
      ASSERT_EQ(found->offset, address - expected->address);
    }
  }
}

TEST(WindowIndex, DoesNotGrowUnderRepeatedChanges) {
  WindowIndex index;
  for (uint64_t segment = 0; segment < 100; ++segment) index.Add(MakeWindow(1, kBase + segment * kPage, kPage));
  const size_t tables = index.tables();
  for (int round = 0; round < 1000; ++round) {
    index.Remove(CommunicatorOf(1), kBase);
    index.Add(MakeWindow(1, kBase, kPage));
  }
  EXPECT_LE(index.tables(), tables + 1);
  EXPECT_LE(tables, 8u) << "two for each doubling from 16 to 128";
}

// What stays registered is found at every moment, what comes and goes is found whole or not at all.
TEST(WindowIndex, IsReadWhileWindowsComeAndGo) {
  constexpr uint64_t kFirst = 8;
  constexpr uint64_t kAll = 200;
  WindowIndex index;
  const auto at = [](uint64_t segment) { return kBase + segment * kPage; };
  for (uint64_t segment = 0; segment < kFirst; ++segment) index.Add(MakeWindow(1, at(segment), kPage));
  std::atomic<bool> over{false};
  std::atomic<uint64_t> wrong{0};
  std::vector<std::thread> readers;
  for (uint64_t reader = 0; reader < 3; ++reader) {
    readers.emplace_back([&, reader] {
      std::mt19937_64 random(reader);
      while (!over.load(std::memory_order_relaxed)) {
        const uint64_t segment = random() % kAll;
        const uint64_t offset = random() % kPage;
        const std::optional<WindowPlace> place = index.Find(CommunicatorOf(1), at(segment) + offset);
        if (!place && segment < kFirst) wrong.fetch_add(1);
        if (place && (place->window != WindowOf(at(segment) + 1) || place->offset != offset)) wrong.fetch_add(1);
      }
    });
  }
  for (int round = 0; round < 5; ++round) {
    for (uint64_t segment = kFirst; segment < kAll; ++segment) index.Add(MakeWindow(1, at(segment), kPage));
    for (uint64_t segment = kFirst; segment < kAll; ++segment) index.Remove(CommunicatorOf(1), at(segment));
  }
  over = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(), 0u);
}

}  // namespace
}  // namespace commpool::internal
