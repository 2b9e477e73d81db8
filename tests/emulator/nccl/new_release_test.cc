// As release 2.30.7: newer releases allow what 2.28.9 refuses (registration_test.cc).
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

[[maybe_unused]] const int kNewer = setenv("COMMPOOL_EMULATOR", "nccl=2.30.7", 1);
const char* const kLogFile = "new_release.log";
[[maybe_unused]] const int kLog =
    setenv("NCCL_DEBUG_FILE", kLogFile, 1) + setenv("NCCL_DEBUG", "INFO", 1) + setenv("NCCL_DEBUG_SUBSYS", "TUNING", 1);

constexpr size_t kBytes = 2 << 20;

class NewRelease : public EmulatedNccl {
 protected:
  static void ExpectWindow(const Rank& rank, const DeviceMemory& memory, size_t bytes) {
    const ncclWindow_t window = RegisterWindow(rank, memory.data(), bytes, NCCL_WIN_COLL_SYMMETRIC);
    EXPECT_NE(window, nullptr);
    EXPECT_EQ(Api().ncclCommWindowDeregister(rank.comm, window), ncclSuccess);
  }
};

// Two physical handles, one after the other in one range.
class TwoHandles {
 public:
  explicit TwoHandles(int device) {
    EXPECT_EQ(Api().cuMemAddressReserve(&address_, 2 * kBytes, 0, 0, 0), CUDA_SUCCESS);
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    for (size_t part = 0; part < 2; ++part) {
      CUmemGenericAllocationHandle handle = 0;
      EXPECT_EQ(Api().cuMemCreate(&handle, kBytes, &properties, 0), CUDA_SUCCESS);
      EXPECT_EQ(Api().cuMemMap(address_ + part * kBytes, kBytes, 0, handle, 0), CUDA_SUCCESS);
      EXPECT_EQ(Api().cuMemRelease(handle), CUDA_SUCCESS);
    }
    const CUmemAccessDesc access = {.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT_EQ(Api().cuMemSetAccess(address_, 2 * kBytes, &access, 1), CUDA_SUCCESS);
  }
  ~TwoHandles() {
    EXPECT_EQ(Api().cuMemUnmap(address_, 2 * kBytes), CUDA_SUCCESS);
    EXPECT_EQ(Api().cuMemAddressFree(address_, 2 * kBytes), CUDA_SUCCESS);
  }
  TwoHandles(const TwoHandles&) = delete;
  TwoHandles& operator=(const TwoHandles&) = delete;

  char* data() const { return reinterpret_cast<char*>(address_); }

 private:
  CUdeviceptr address_ = 0;
};

// NCCL 2.30.3's release notes; before, a window is one physical handle.
TEST_F(NewRelease, TakesWindowsOfSeveralPhysicalHandles) {
  RunRanks(3, [](Rank& rank) {
    const TwoHandles memory(rank.rank);
    const ncclWindow_t window = RegisterWindow(rank, memory.data(), 2 * kBytes);
    char reason[128] = {};
    EXPECT_EQ(Api().commpoolEmulatorNvls(reinterpret_cast<CUdeviceptr>(memory.data()), reason, sizeof reason), 0);
    EXPECT_EQ(std::string(reason), "its memory is not one physical handle");
    EXPECT_EQ(Api().ncclCommWindowDeregister(rank.comm, window), ncclSuccess);
  });
}

TEST_F(NewRelease, StillRefusesAWindowThatRunsPastItsMemory) {
  RunRanks(1, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kBytes);
    ncclWindow_t window = nullptr;
    EXPECT_EQ(Api().ncclCommWindowRegister(rank.comm, memory.data(), 2 * kBytes, &window, 0), ncclInvalidArgument);
  });
  EXPECT_NE(TakeReports().find("window is larger than its physical handle"), std::string::npos);
}

// NCCL's user guide: memory of a NUMA node from 2.30.3, of any node of the host never.
TEST_F(NewRelease, TakesWindowsOfANumaNodesMemory) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kBytes, MemoryKind::kVirtual, CU_MEM_LOCATION_TYPE_HOST_NUMA);
    ExpectWindow(rank, memory, kBytes);
    const DeviceMemory anywhere(rank.rank, kBytes, MemoryKind::kVirtual, CU_MEM_LOCATION_TYPE_HOST,
                                CU_MEM_HANDLE_TYPE_NONE);
    ncclWindow_t window = nullptr;
    EXPECT_EQ(Api().ncclCommWindowRegister(rank.comm, anywhere.data(), kBytes, &window, 0), ncclInvalidArgument);
  });
}

TEST_F(NewRelease, TakesWindowsOfUnequalSizes) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kBytes * static_cast<size_t>(rank.rank + 1));
    ExpectWindow(rank, memory, memory.bytes());
  });
}

// NCCL 2.30.3's release notes: averages of floats; whole numbers and maxima not (NVIDIA/nccl#2014).
TEST_F(NewRelease, HasSymmetricKernelsForAverages) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kBytes);
    char* const data = memory.data();
    const ncclWindow_t window = RegisterWindow(rank, data, kBytes, NCCL_WIN_COLL_SYMMETRIC);
    ASSERT_EQ(Api().ncclReduceScatter(data, data + 4096, 64, ncclFloat, ncclAvg, rank.comm, rank.stream), ncclSuccess);
    ASSERT_EQ(Api().ncclAllReduce(data, data, 64, ncclFloat, ncclMax, rank.comm, rank.stream), ncclSuccess);
    rank.Synchronize();
    EXPECT_EQ(Api().ncclCommWindowDeregister(rank.comm, window), ncclSuccess);
  });
  std::ifstream file(kLogFile);
  const std::string log{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_NE(log.find("ReduceScatter [Symmetric]"), std::string::npos) << log;
  EXPECT_EQ(log.find("AllReduce [Symmetric]"), std::string::npos) << log;
}

// NCCL 2.29.7: ending a communicator takes its windows down.
TEST_F(NewRelease, TakesLeftWindowsDownWithTheirCommunicator) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kBytes);
    RegisterWindow(rank, memory.data(), kBytes);
    EXPECT_EQ(Api().ncclCommDestroy(rank.comm), ncclSuccess);
    rank.comm = nullptr;
  });
}

}  // namespace
}  // namespace commpool::internal::testing
