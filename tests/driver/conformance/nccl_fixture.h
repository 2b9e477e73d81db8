// Communicators for NCCL's conformance tests: this thread has all ranks, each on its own device.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <cstdlib>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "src/library/driver/handles.h"
#include "tests/driver/conformance/conformance_fixture.h"

namespace commpool::internal::testing {

struct Rank {
  int rank = 0;
  PrimaryContext context;
  CUstream stream = nullptr;
  ncclComm_t communicator = nullptr;
};

class NcclTest : public DriverTest {
 protected:
  // Keeps multicast off on hardware: NCCL reads the variable at its first communicator.
  static void SetUpTestSuite() { setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0); }
  void SetUp() override { COMMPOOL_REQUIRE_NCCL(); }
  ~NcclTest() override {
    Synchronize();
    Grouped([&](Rank& rank) { EXPECT_EQ(nccl().ncclCommDestroy(rank.communicator), ncclSuccess); });
    ForEachRank([&](Rank& rank) { EXPECT_EQ(cuda().cuStreamDestroy(rank.stream), CUDA_SUCCESS); });
  }

  const NcclLibrary& nccl() const { return driver().nccl; }
  const CudaDriver& cuda() const { return driver().cuda; }

  // Makes communicators over the first devices. REQUIRES: there are enough devices.
  void Connect(int ranks) {
    std::vector<int> devices(static_cast<size_t>(ranks));
    std::iota(devices.begin(), devices.end(), 0);
    std::vector<ncclComm_t> communicators(devices.size());
    ASSERT_EQ(nccl().ncclCommInitAll(communicators.data(), ranks, devices.data()), ncclSuccess);
    for (const int device : devices) {
      Rank rank{device, PrimaryContext::Retain(driver(), device).value()};
      rank.communicator = communicators[static_cast<size_t>(device)];
      const ContextGuard current(driver(), rank.context);
      EXPECT_EQ(cuda().cuStreamCreate(&rank.stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
      ranks_.push_back(std::move(rank));
    }
  }
  std::vector<Rank>& ranks() { return ranks_; }

  // Calls for every rank with its context current, in an NCCL group, as a thread with several ranks must.
  void ForEachRank(const std::function<void(Rank&)>& body) {
    for (Rank& rank : ranks_) {
      const ContextGuard current(driver(), rank.context);
      body(rank);
    }
  }
  void Grouped(const std::function<void(Rank&)>& body) {
    if (ranks_.empty()) return;
    const ContextGuard kept(driver());
    EXPECT_EQ(nccl().ncclGroupStart(), ncclSuccess);
    ForEachRank(body);
    EXPECT_EQ(nccl().ncclGroupEnd(), ncclSuccess);
  }
  void Synchronize() {
    ForEachRank([&](Rank& rank) { EXPECT_EQ(cuda().cuStreamSynchronize(rank.stream), CUDA_SUCCESS); });
  }

  void ExpectPlace(ncclComm_t communicator, int expected_rank, int expected_size) {
    int value = -1;
    EXPECT_EQ(nccl().ncclCommUserRank(communicator, &value), ncclSuccess);
    EXPECT_EQ(value, expected_rank);
    EXPECT_EQ(nccl().ncclCommCount(communicator, &value), ncclSuccess);
    EXPECT_EQ(value, expected_size);
  }

  template <typename T>
  void Upload(CUdeviceptr address, const std::vector<T>& values) {
    EXPECT_EQ(cuda().cuMemcpyHtoD(address, values.data(), values.size() * sizeof(T)), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuStreamSynchronize(nullptr), CUDA_SUCCESS);  // a pageable copy may still run
  }
  template <typename T>
  std::vector<T> Download(CUdeviceptr address, size_t count) {
    std::vector<T> values(count);
    EXPECT_EQ(cuda().cuMemcpyDtoH(values.data(), address, count * sizeof(T)), CUDA_SUCCESS);
    return values;
  }

 private:
  std::vector<Rank> ranks_;
};

// The rank's element of a vector with one element for each rank.
template <typename T>
auto& OfRank(T& of_each_rank, const Rank& rank) {
  return of_each_rank[static_cast<size_t>(rank.rank)];
}

inline void* ToPointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

}  // namespace commpool::internal::testing
