// Measures the driver through the C ABI: switched on before the driver is open, read at any time after. One process, so
// one test has all facts, in their order.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/c_api/c_abi.h"

namespace commpool::internal::testing {
namespace {

std::vector<commpool_driver_call> DriverCalls() {
  size_t count = 0;
  ExpectOk(commpool_driver_calls(nullptr, 0, 0, &count));
  std::vector<commpool_driver_call> calls(count);
  ExpectOk(commpool_driver_calls(calls.data(), sizeof(calls[0]), calls.size(), &count));
  EXPECT_EQ(count, calls.size());
  return calls;
}

commpool_driver_call Find(const std::vector<commpool_driver_call>& calls, const std::string& name) {
  const auto found = std::find_if(calls.begin(), calls.end(), [&](const auto& call) { return call.name == name; });
  return found == calls.end() ? commpool_driver_call{"", 0, 0} : *found;
}

void ExpectOnlyAsManyAsThereIsRoomFor(const std::vector<commpool_driver_call>& calls) {
  commpool_driver_call first[2] = {{"untouched", 0, 0}, {"untouched", 0, 0}};
  ExpectOk(commpool_driver_calls(first, sizeof(first[0]), 1, nullptr));
  EXPECT_STREQ(first[0].name, calls[0].name);
  EXPECT_STREQ(first[1].name, "untouched");
}

// As in programs of another minor version.
void ExpectEntriesOfAnotherSizeAreRefused() {
  commpool_driver_call call = {};
  size_t count = 0;
  for (const size_t entry_bytes : {size_t{8}, sizeof(call) + 8}) {
    EXPECT_EQ(commpool_driver_calls(&call, entry_bytes, 1, &count), COMMPOOL_INVALID_ARGUMENT);
  }
  EXPECT_EQ(call.name, nullptr) << "outputs are not written";
}

TEST(MeasuredDriver, ListsTheFunctionsThatWereCalledAndTheirCost) {
  size_t count = 7;
  EXPECT_EQ(commpool_driver_calls(nullptr, 0, 0, &count), COMMPOOL_FAILED_PRECONDITION) << "nothing is measured";
  EXPECT_EQ(count, 7u) << "outputs are not written";
  EXPECT_EQ(commpool_initialize(COMMPOOL_DRIVER_AUTO, As<commpool_measure>(2)), COMMPOOL_INVALID_ARGUMENT);
  ExpectOk(commpool_initialize(COMMPOOL_DRIVER_AUTO, COMMPOOL_MEASURE_CALLS));
  EXPECT_EQ(commpool_initialize(COMMPOOL_DRIVER_AUTO, COMMPOOL_MEASURE_CALLS), COMMPOOL_OK) << "asked for again";
  ExpectOk(commpool_initialize(COMMPOOL_DRIVER_AUTO, COMMPOOL_MEASURE_NOTHING));
  EXPECT_EQ(Find(DriverCalls(), "cuMemMap").count, 0u) << "nothing has asked for memory";
  EXPECT_EQ(commpool_driver_calls(nullptr, sizeof(commpool_driver_call), 3, nullptr), COMMPOOL_INVALID_ARGUMENT);

  ExpectOk(commpool_pool_reserve(OwnedPool(), 2 << 20));
  const std::vector<commpool_driver_call> calls = DriverCalls();
  const commpool_driver_call map = Find(calls, "cuMemMap");
  EXPECT_EQ(map.count, 1u);
  EXPECT_GT(map.microseconds, 0);
  EXPECT_EQ(Find(calls, "cuMemUnmap").count, 1u);
  EXPECT_TRUE(std::is_sorted(calls.begin(), calls.end(),
                             [](const auto& a, const auto& b) { return a.microseconds > b.microseconds; }));
  ExpectOnlyAsManyAsThereIsRoomFor(calls);
  ExpectEntriesOfAnotherSizeAreRefused();
}

}  // namespace
}  // namespace commpool::internal::testing
