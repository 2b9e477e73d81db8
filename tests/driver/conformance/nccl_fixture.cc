#include "tests/driver/conformance/nccl_fixture.h"

#include <cstdlib>
#include <numeric>
#include <utility>

namespace commpool::internal::testing {

void NcclTest::SetUpTestSuite() {
  // Read by NCCL at its first communicator.
  setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0);
}

void NcclTest::SetUp() { COMMPOOL_REQUIRE_NCCL(); }

void NcclTest::Connect(int ranks) {
  std::vector<int> devices(static_cast<size_t>(ranks));
  std::iota(devices.begin(), devices.end(), 0);
  std::vector<ncclComm_t> communicators(devices.size());
  ASSERT_EQ(nccl().ncclCommInitAll(communicators.data(), ranks, devices.data()), ncclSuccess);
  for (int device : devices) {
    Rank rank;
    rank.rank = device;
    rank.context = PrimaryContext::Retain(driver(), device).value();
    rank.communicator = communicators[static_cast<size_t>(device)];
    ContextGuard current(driver(), rank.context);
    EXPECT_EQ(cuda().cuStreamCreate(&rank.stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ranks_.push_back(std::move(rank));
  }
}

NcclTest::~NcclTest() {
  Synchronize();
  Grouped([&](Rank& rank) { EXPECT_EQ(nccl().ncclCommDestroy(rank.communicator), ncclSuccess); });
  ForEachRank([&](Rank& rank) { EXPECT_EQ(cuda().cuStreamDestroy(rank.stream), CUDA_SUCCESS); });
}

void NcclTest::ForEachRank(const std::function<void(Rank&)>& body) {
  for (Rank& rank : ranks_) {
    ContextGuard current(driver(), rank.context);
    body(rank);
  }
}

void NcclTest::Grouped(const std::function<void(Rank&)>& body) {
  if (ranks_.empty()) return;
  ContextGuard kept(driver());
  EXPECT_EQ(nccl().ncclGroupStart(), ncclSuccess);
  ForEachRank(body);
  EXPECT_EQ(nccl().ncclGroupEnd(), ncclSuccess);
}

void NcclTest::Synchronize() {
  ForEachRank([&](Rank& rank) { EXPECT_EQ(cuda().cuStreamSynchronize(rank.stream), CUDA_SUCCESS); });
}

std::vector<MappedMemory> NcclTest::MakeMappedOnEachRank(uint64_t bytes) {
  std::vector<MappedMemory> memories;
  ForEachRank([&](Rank& rank) {
    memories.push_back(MappedMemory::Make(driver(), DeviceLocation(rank.rank), bytes, rank.rank).value());
  });
  return memories;
}

}  // namespace commpool::internal::testing
