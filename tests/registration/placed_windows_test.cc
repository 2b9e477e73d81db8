// Where NCCL has placed the windows of a process, told by records that are made up here.
#include "src/library/registration/placed_windows.h"

#include <gtest/gtest.h>

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

TEST(PlacedWindows, ComeBackInTheOrderThatTheirPlacesAskFor) {
  PlacedWindows placed;
  const ncclComm_t home = Numbered(1);
  // A(2), B(1); A ends; C(1) comes to its place, D(2) last.
  placed.Add(home, 'A', 2 * kUnit, RecordAt(1, 1));
  placed.Add(home, 'B', kUnit, RecordAt(3, 2));
  placed.Remove(home, 'A');
  placed.Add(home, 'C', kUnit, RecordAt(1, 1));
  placed.Add(home, 'D', 2 * kUnit, RecordAt(4, 3));
  const Result<Steps> steps = placed.FindReturn(home, {'B', 'C', 'D'});
  ASSERT_TRUE(steps.ok());
  EXPECT_EQ(*steps, (Steps{Registered(2), Registered(0), Ended(2), Registered(1), Registered(2)}));
  // While D is there nothing but C is away.
  EXPECT_EQ(placed.FindReturn(home, {'C'}).value(), Steps{Registered(0)});
}

TEST(PlacedWindows, AreNotPromisedWhereAGapBelowWouldTakeThem) {
  PlacedWindows placed;
  placed.Add(Numbered(1), 'A', 2 * kUnit, RecordAt(0, 0));
  placed.Add(Numbered(1), 'B', kUnit, RecordAt(2, 1));
  placed.Remove(Numbered(1), 'A');
  const Status none = placed.FindReturn(Numbered(1), {'B'}).status();
  EXPECT_EQ(none.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(none.message(), "no order of registering brings all windows back");
}

TEST(PlacedWindows, AreNotPromisedWhereOneIsUnknown) {
  PlacedWindows placed;
  placed.Add(Numbered(1), 'A', kUnit, RecordAt(0, 0));
  for (const Status& unknown :
       {placed.FindReturn(Numbered(1), {'A', 'B'}).status(), placed.FindReturn(Numbered(2), {'A'}).status()}) {
    EXPECT_EQ(unknown.code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(unknown.message(), "nobody knows where NCCL has placed a window");
  }
  EXPECT_FALSE(placed.Find(Numbered(2), 'A').has_value());
  placed.Remove(Numbered(1), 'B');
  EXPECT_EQ(placed.Find(Numbered(1), 'A'), RecordAt(0, 0));
}

TEST(PlacedWindows, AreNotPromisedWhereSomeRanksAreReachedByTheNetwork) {
  PlacedWindows placed;
  WindowRecord record = RecordAt(0, 0);
  record.fields.rank = 2;  // the first of the second host
  placed.Add(Numbered(1), 'A', kUnit, record);
  const Status held = placed.FindReturn(Numbered(1), {'A'}).status();
  EXPECT_EQ(held.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(held.message(), "proxies of NCCL hold windows for the network");
}

TEST(PlacedWindows, AreForgottenWithTheLastOfTheirCommunicator) {
  PlacedWindows placed;
  const ncclComm_t recycled = Numbered(1);
  placed.Add(recycled, 'A', kUnit, RecordAt(7, 5));
  placed.Remove(recycled, 'A');
  // Of the new communicator at this address nothing is known that could forbid it.
  placed.Add(recycled, 'B', kUnit, RecordAt(0, 0, 2 * kFirstPage));
  EXPECT_EQ(placed.FindReturn(recycled, {'B'}).value(), Steps{Registered(0)});
}

TEST(PlacedWindows, CountPagesOfRecordsAsTheyCome) {
  PlacedWindows placed;
  const ncclComm_t home = Numbered(1);
  std::vector<CUdeviceptr> addresses;
  for (uint32_t window = 0; window < 100; ++window) {
    addresses.push_back(window + 1);
    // The later page has the lower address.
    placed.Add(home, addresses.back(), kUnit, RecordAt(window, window % 64, window < 64 ? 2 * kFirstPage : kFirstPage));
  }
  Steps in_a_row;
  for (size_t window = 0; window < 100; ++window) in_a_row.push_back(Registered(window));
  EXPECT_EQ(placed.FindReturn(home, addresses).value(), in_a_row);
}

}  // namespace
}  // namespace commpool::internal
