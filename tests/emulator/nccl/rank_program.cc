// One rank as a process: rank_program RANK RANKS FILE, which holds a unique id. Exits with 0 where its
// all-reduces, plain and in a window, had the right results; with 10 where a local registration posed as the window.
#include <cstdlib>
#include <fstream>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

void ExpectSum(const Rank& rank, const DeviceMemory& memory, size_t count, const char* where) {
  SCOPED_TRACE(where);
  Upload(memory.data(), std::vector<float>(count, static_cast<float>(rank.rank + 1)));
  ASSERT_EQ(rank.AllReduce(memory, count, ncclFloat), ncclSuccess);
  const float expected = static_cast<float>(rank.ranks * (rank.ranks + 1)) / 2;
  EXPECT_EQ(rank.Result<float>(memory.data(), count), std::vector<float>(count, expected));
}

int Run(int number, int ranks, const char* id_file) {
  ncclUniqueId id = {};
  std::ifstream(id_file, std::ios::binary).read(id.internal, sizeof id.internal);
  constexpr size_t kCount = 1'000'000;
  bool posed = false;
  RunRank(number, ranks, id, [&](Rank& rank) {
    const DeviceMemory memory(number, kCount * sizeof(float));
    ExpectSum(rank, memory, kCount, "plain");
    const auto window = ScopedWindow(rank, memory, NCCL_WIN_COLL_SYMMETRIC);
    ExpectSum(rank, memory, kCount, "in a window");
    posed = ScopedHandle(rank, memory).get() == static_cast<void*>(window.get());
  });
  return ::testing::UnitTest::GetInstance()->Failed() ? 1 : posed ? 10 : 0;
}

}  // namespace
}  // namespace commpool::internal::testing

int main(int count, char** arguments) {
  if (count != 4) return 64;
  return commpool::internal::testing::Run(std::atoi(arguments[1]), std::atoi(arguments[2]), arguments[3]);
}
