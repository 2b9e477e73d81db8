// Communicators for NCCL's conformance tests: this thread has all ranks, each on its own device.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <cstdint>
#include <functional>
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
  static void SetUpTestSuite();  // keeps multicast off on hardware
  void SetUp() override;
  ~NcclTest() override;

  const NcclLibrary& nccl() const { return driver().nccl; }
  const CudaDriver& cuda() const { return driver().cuda; }

  // Makes communicators over the first devices. REQUIRES: there are enough devices.
  void Connect(int ranks);
  std::vector<Rank>& ranks() { return ranks_; }

  // Calls for every rank with its context current, in an NCCL group, as a thread with several ranks must.
  void ForEachRank(const std::function<void(Rank&)>& body);
  void Grouped(const std::function<void(Rank&)>& body);
  void Synchronize();

  // Memory for a window on each rank's device.
  std::vector<MappedMemory> MakeMappedOnEachRank(uint64_t bytes);

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
