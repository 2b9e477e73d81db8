// Windows are found, and come back to their places. Pure: handles here are numbers that nobody calls, and records are
// made up.
#include "src/library/registration/window_book.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "src/library/base/bytes.h"

namespace commpool::internal {
namespace {

constexpr uint64_t kUnit = 2 * kMiB;
constexpr uint64_t kFirstPage = 0x10000;

ncclComm_t Numbered(uintptr_t number) { return reinterpret_cast<ncclComm_t>(number); }

// The record of a window at so many units, in one of the pages.
WindowRecord RecordAt(uint64_t units, uint32_t slot, uint64_t page = kFirstPage) {
  return {.window = reinterpret_cast<ncclWindow_t>(page + slot),
          .fields = {.place_4k = static_cast<uint32_t>(units * kUnit >> 12)},
          .page = page,
          .slot = slot};
}

using Steps = std::vector<WindowStep>;
constexpr WindowStep Registered(size_t window) { return {WindowStep::Act::kRegister, window}; }
constexpr WindowStep Ended(size_t window) { return {WindowStep::Act::kEnd, window}; }

constexpr CUdeviceptr kBase = CUdeviceptr{0x7f00} << 32;

ncclWindow_t NumberedWindow(uint64_t number) { return reinterpret_cast<ncclWindow_t>(number); }

// A window whose handle says which address and which communicator it is of.
RegisteredWindow MakeWindow(uint64_t communicator, CUdeviceptr address, uint64_t bytes) {
  return {Numbered(communicator), address, bytes, NumberedWindow(address + communicator)};
}

TEST(WindowBook, IsEmptyAtFirst) {
  const WindowBook book;
  EXPECT_FALSE(book.Find(Numbered(1), kBase));
  EXPECT_FALSE(book.Find(nullptr, 0));
}

TEST(WindowBook, FindsWhatLiesInsideAndNothingElse) {
  WindowBook book;
  book.Add(MakeWindow(1, kBase, 3 * kUnit));
  for (const uint64_t offset : {uint64_t{0}, uint64_t{1}, kUnit, 3 * kUnit - 1}) {
    const std::optional<WindowPlace> place = book.Find(Numbered(1), kBase + offset);
    ASSERT_TRUE(place) << offset;
    EXPECT_EQ(place->window, NumberedWindow(kBase + 1));
    EXPECT_EQ(place->offset, offset);
  }
  EXPECT_FALSE(book.Find(Numbered(1), kBase - 1));
  EXPECT_FALSE(book.Find(Numbered(1), kBase + 3 * kUnit));
  EXPECT_FALSE(book.Find(Numbered(2), kBase));
  EXPECT_FALSE(book.Find(nullptr, kBase));
  EXPECT_FALSE(book.Find(Numbered(1), 0));
  EXPECT_FALSE(book.Find(Numbered(1), UINT64_MAX));
}

TEST(WindowBook, TellsTheCommunicatorsOfOneSegmentApart) {
  WindowBook book;
  for (uint64_t communicator = 1; communicator <= 4; ++communicator) book.Add(MakeWindow(communicator, kBase, kUnit));
  for (uint64_t communicator = 1; communicator <= 4; ++communicator) {
    EXPECT_EQ(book.Find(Numbered(communicator), kBase + 7)->window, NumberedWindow(kBase + communicator));
  }
  book.Remove(Numbered(2), kBase);
  EXPECT_FALSE(book.Find(Numbered(2), kBase));
  EXPECT_TRUE(book.Find(Numbered(3), kBase));
}

TEST(WindowBook, RemovesOnlyWindowsThatItHas) {
  WindowBook book;
  book.Add(MakeWindow(1, kBase, 2 * kUnit));
  book.Remove(Numbered(1), kBase + kUnit);
  book.Remove(Numbered(2), kBase);
  EXPECT_TRUE(book.Find(Numbered(1), kBase + kUnit));
  book.Remove(Numbered(1), kBase);
  book.Remove(Numbered(1), kBase);
  EXPECT_FALSE(book.Find(Numbered(1), kBase));
}

// Sizes from one page of 64 KiB to 80 GiB side by side, at any multiple of 64 KiB: against a plain list.
TEST(WindowBook, AgreesWithAListOverWindowsOfAllSizes) {
  constexpr uint64_t kStep = 64 << 10;
  std::mt19937_64 random(7);
  WindowBook book;
  std::vector<RegisteredWindow> list;
  CUdeviceptr next = kBase;
  for (int round = 0; round < 600; ++round) {
    if (round % 3 == 2) {
      const size_t victim = random() % list.size();
      book.Remove(list[victim].communicator, list[victim].address);
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(victim));
    } else {
      const uint64_t bytes = round == 100 ? uint64_t{80} << 30 : kStep << (random() % 8);
      list.push_back(MakeWindow(1 + random() % 4, next, bytes));
      book.Add(list.back());
      next += bytes + kStep * (random() % 3);
    }
    for (int probe = 0; probe < 20; ++probe) {
      const RegisteredWindow& near = list[random() % list.size()];
      const CUdeviceptr address = near.address + near.bytes / 20 * static_cast<uint64_t>(probe) * 11 / 10;
      const ncclComm_t communicator = probe % 4 == 0 ? Numbered(1) : near.communicator;
      const auto expected = std::find_if(list.begin(), list.end(), [&](const RegisteredWindow& window) {
        return window.communicator == communicator && address - window.address < window.bytes;
      });
      const std::optional<WindowPlace> found = book.Find(communicator, address);
      ASSERT_EQ(found.has_value(), expected != list.end()) << round;
      if (!found) continue;
      ASSERT_EQ(found->window, expected->window);
      ASSERT_EQ(found->offset, address - expected->address);
    }
  }
}

TEST(WindowBook, FindsTheLaterWindowAtAnAddress) {
  WindowBook book;
  book.Add(MakeWindow(1, kBase, 2 * kUnit));
  book.Remove(Numbered(1), kBase);
  book.Add({Numbered(1), kBase, kUnit, NumberedWindow(7)});
  EXPECT_EQ(book.Find(Numbered(1), kBase + kUnit - 1)->window, NumberedWindow(7));
  EXPECT_FALSE(book.Find(Numbered(1), kBase + kUnit));
}

TEST(WindowBook, FindsWindowsWhoseRecordsAreNotKnownAndPromisesThemNoPlace) {
  WindowBook book;
  book.Add({Numbered(1), kBase, kUnit, RecordAt(0, 0).window, RecordAt(0, 0)});
  book.Add(MakeWindow(1, kBase + kUnit, kUnit));
  EXPECT_TRUE(book.Find(Numbered(1), kBase + kUnit));
  EXPECT_FALSE(book.RecordOf(Numbered(1), kBase + kUnit));
  EXPECT_EQ(book.FindReturn(Numbered(1), {kBase, kBase + kUnit}).status().code(), StatusCode::kFailedPrecondition);
  book.Remove(Numbered(1), kBase + kUnit);
  EXPECT_EQ(book.FindReturn(Numbered(1), {kBase}).value(), Steps{Registered(0)});
}

// What stays registered is found at every moment, what comes and goes is found whole or not at all.
TEST(WindowBook, IsReadWhileWindowsComeAndGo) {
  constexpr uint64_t kFirst = 8;
  constexpr uint64_t kAll = 200;
  WindowBook book;
  const auto at = [](uint64_t segment) { return kBase + segment * kUnit; };
  for (uint64_t segment = 0; segment < kFirst; ++segment) book.Add(MakeWindow(1, at(segment), kUnit));
  std::atomic<bool> over{false};
  std::atomic<uint64_t> wrong{0};
  std::atomic<uint64_t> looks{0};
  std::vector<std::thread> readers;
  for (uint64_t reader = 0; reader < 3; ++reader) {
    readers.emplace_back([&, reader] {
      std::mt19937_64 random(reader);
      while (!over.load(std::memory_order_relaxed)) {
        looks.fetch_add(1, std::memory_order_relaxed);
        const uint64_t segment = random() % kAll;
        const uint64_t offset = random() % kUnit;
        const std::optional<WindowPlace> place = book.Find(Numbered(1), at(segment) + offset);
        if (!place && segment < kFirst) wrong.fetch_add(1);
        if (place && (place->window != NumberedWindow(at(segment) + 1) || place->offset != offset)) wrong.fetch_add(1);
      }
    });
  }
  while (looks < 10000) {
    for (uint64_t segment = kFirst; segment < kAll; ++segment) book.Add(MakeWindow(1, at(segment), kUnit));
    for (uint64_t segment = kFirst; segment < kAll; ++segment) book.Remove(Numbered(1), at(segment));
  }
  over = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(), 0u);
}

class WindowBookReturn : public ::testing::Test {
 protected:
  void Place(CUdeviceptr address, uint64_t bytes, const WindowRecord& record) {
    book_.Add({home_, address, bytes, record.window, record});
  }
  static void ExpectNone(const Result<Steps>& steps, const char* why) {
    EXPECT_EQ(steps.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(steps.status().message(), why);
  }

  const ncclComm_t home_ = Numbered(1);
  WindowBook book_;
};

TEST_F(WindowBookReturn, ComeBackInTheOrderThatTheirPlacesAskFor) {
  // A(2), B(1); A ends; C(1) comes to its place, D(2) last.
  Place('A', 2 * kUnit, RecordAt(1, 1));
  Place('B', kUnit, RecordAt(3, 2));
  book_.Remove(home_, 'A');
  Place('C', kUnit, RecordAt(1, 1));
  Place('D', 2 * kUnit, RecordAt(4, 3));
  EXPECT_EQ(book_.FindReturn(home_, {'B', 'C', 'D'}).value(),
            (Steps{Registered(2), Registered(0), Ended(2), Registered(1), Registered(2)}));
  // While D is there nothing but C is away.
  EXPECT_EQ(book_.FindReturn(home_, {'C'}).value(), Steps{Registered(0)});
}

TEST_F(WindowBookReturn, AreNotPromisedWhereAGapBelowWouldTakeThem) {
  Place('A', 2 * kUnit, RecordAt(0, 0));
  Place('B', kUnit, RecordAt(2, 1));
  book_.Remove(home_, 'A');
  ExpectNone(book_.FindReturn(home_, {'B'}), "no order of registering brings all windows back");
}

TEST_F(WindowBookReturn, AreNotPromisedWhereOneIsUnknown) {
  Place('A', kUnit, RecordAt(0, 0));
  ExpectNone(book_.FindReturn(home_, {'A', 'B'}), "nobody knows where NCCL has placed a window");
  ExpectNone(book_.FindReturn(Numbered(2), {'A'}), "nobody knows where NCCL has placed a window");
  EXPECT_FALSE(book_.RecordOf(Numbered(2), 'A').has_value());
  book_.Remove(home_, 'B');
  EXPECT_EQ(book_.RecordOf(home_, 'A'), RecordAt(0, 0));
}

TEST_F(WindowBookReturn, AreNotPromisedWhereSomeRanksAreReachedByTheNetwork) {
  WindowRecord record = RecordAt(0, 0);
  record.fields.rank = 2;  // the first of the second host
  Place('A', kUnit, record);
  ExpectNone(book_.FindReturn(home_, {'A'}), "proxies of NCCL hold windows for the network");
}

TEST_F(WindowBookReturn, AreForgottenWithTheLastOfTheirCommunicator) {
  Place('A', kUnit, RecordAt(7, 5));
  book_.Remove(home_, 'A');
  // Of the new communicator at this address nothing is known that could forbid it.
  Place('B', kUnit, RecordAt(0, 0, 2 * kFirstPage));
  EXPECT_EQ(book_.FindReturn(home_, {'B'}).value(), Steps{Registered(0)});
}

TEST_F(WindowBookReturn, CountPagesOfRecordsAsTheyCome) {
  std::vector<CUdeviceptr> addresses;
  for (uint32_t window = 0; window < 100; ++window) {
    addresses.push_back(window + 1);
    // The later page has the lower address.
    Place(addresses.back(), kUnit, RecordAt(window, window % 64, window < 64 ? 2 * kFirstPage : kFirstPage));
  }
  Steps in_a_row;
  for (size_t window = 0; window < 100; ++window) in_a_row.push_back(Registered(window));
  EXPECT_EQ(book_.FindReturn(home_, addresses).value(), in_a_row);
}

}  // namespace
}  // namespace commpool::internal
