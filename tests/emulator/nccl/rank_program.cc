// One rank as a process: rank_program RANK RANKS ID, where ID is a unique id in hexadecimal. Exits with 0 where its
// all-reduces, plain and in a window, had the right results; with 10 where a local registration posed as the window.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

ncclUniqueId ParseId(const std::string& text) {
  ncclUniqueId id = {};
  for (size_t index = 0; index < sizeof id.internal && 2 * index + 1 < text.size(); ++index) {
    id.internal[index] = static_cast<char>(std::stoi(text.substr(2 * index, 2), nullptr, 16));
  }
  return id;
}

bool SumIsRight(const Rank& rank, char* data, size_t count) {
  Upload(data, std::vector<float>(count, static_cast<float>(rank.rank + 1)));
  if (Api().ncclAllReduce(data, data, count, ncclFloat, ncclSum, rank.comm, rank.stream) != ncclSuccess) return false;
  if (Api().cuStreamSynchronize(rank.stream) != CUDA_SUCCESS) return false;
  const float expected = static_cast<float>(rank.ranks * (rank.ranks + 1)) / 2;
  return Download<float>(data, count) == std::vector<float>(count, expected);
}

int Run(int number, int ranks, const ncclUniqueId& id) {
  constexpr size_t kCount = 1'000'000;
  const CurrentDevice current(number);
  Rank rank{.rank = number, .ranks = ranks};
  if (Api().ncclCommInitRank(&rank.comm, ranks, id, number) != ncclSuccess) return 2;
  if (Api().cuStreamCreate(&rank.stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) return 3;
  bool right = true;
  bool posed = false;
  {
    const DeviceMemory memory(number, kCount * sizeof(float));
    right = SumIsRight(rank, memory.data(), kCount);
    ncclWindow_t window = nullptr;
    if (Api().ncclCommWindowRegister(rank.comm, memory.data(), memory.bytes(), &window, NCCL_WIN_COLL_SYMMETRIC) !=
        ncclSuccess) {
      return 4;
    }
    right = right && SumIsRight(rank, memory.data(), kCount);
    void* local = nullptr;
    if (Api().ncclCommRegister(rank.comm, memory.data(), memory.bytes(), &local) != ncclSuccess) return 7;
    posed = local == static_cast<void*>(window);
    if (Api().ncclCommDeregister(rank.comm, local) != ncclSuccess) return 8;
    if (Api().ncclCommWindowDeregister(rank.comm, window) != ncclSuccess) return 5;
  }
  Api().cuStreamDestroy(rank.stream);
  if (Api().ncclCommDestroy(rank.comm) != ncclSuccess) return 6;
  return !right ? 1 : posed ? 10 : 0;
}

}  // namespace
}  // namespace commpool::internal::testing

int main(int count, char** arguments) {
  if (count != 4) return 64;
  return commpool::internal::testing::Run(std::atoi(arguments[1]), std::atoi(arguments[2]),
                                          commpool::internal::testing::ParseId(arguments[3]));
}
