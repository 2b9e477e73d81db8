// Shared by the tests of the emulated NCCL: both libraries, opened as a program would; buffers; ranks as threads.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <functional>
#include <string>
#include <vector>

#include "src/emulator/extension.h"
#include "src/library/driver/newer_nccl.h"

#define COMMPOOL_TEST_DRIVER_FUNCTIONS(X) \
  X(cuInit)                               \
  X(cuCtxGetCurrent)                      \
  X(cuCtxSetCurrent)                      \
  X(cuDevicePrimaryCtxRelease)            \
  X(cuDevicePrimaryCtxRetain)             \
  X(cuMemAddressFree)                     \
  X(cuMemAddressReserve)                  \
  X(cuMemAlloc)                           \
  X(cuMemCreate)                          \
  X(cuMemFree)                            \
  X(cuMemGetInfo)                         \
  X(cuMemMap)                             \
  X(cuMemRelease)                         \
  X(cuMemSetAccess)                       \
  X(cuMemUnmap)                           \
  X(cuMemcpyDtoDAsync)                    \
  X(cuMemcpyDtoH)                         \
  X(cuMemcpyHtoD)                         \
  X(cuGraphDestroy)                       \
  X(cuGraphExecDestroy)                   \
  X(cuGraphInstantiate)                   \
  X(cuGraphLaunch)                        \
  X(cuStreamBeginCapture)                 \
  X(cuStreamCreate)                       \
  X(cuStreamEndCapture)                   \
  X(cuStreamQuery)                        \
  X(cuStreamDestroy)                      \
  X(cuStreamSynchronize)                  \
  X(commpoolEmulatorClearFaults)          \
  X(commpoolEmulatorClearReports)         \
  X(commpoolEmulatorInjectFault)          \
  X(commpoolEmulatorLeaks)                \
  X(commpoolEmulatorNvls)                 \
  X(commpoolEmulatorReports)

#define COMMPOOL_TEST_NCCL_FUNCTIONS(X) \
  X(ncclAllGather)                      \
  X(ncclAllReduce)                      \
  X(ncclAlltoAll)                       \
  X(ncclBcast)                          \
  X(ncclBroadcast)                      \
  X(ncclCommAbort)                      \
  X(ncclCommCount)                      \
  X(ncclCommCuDevice)                   \
  X(ncclCommDeregister)                 \
  X(ncclCommDestroy)                    \
  X(ncclCommFinalize)                   \
  X(ncclCommGetAsyncError)              \
  X(ncclCommGetUniqueId)                \
  X(ncclCommGrow)                       \
  X(ncclCommInitAll)                    \
  X(ncclCommInitRank)                   \
  X(ncclCommInitRankConfig)             \
  X(ncclCommMemStats)                   \
  X(ncclCommRegister)                   \
  X(ncclCommResume)                     \
  X(ncclCommRevoke)                     \
  X(ncclCommShrink)                     \
  X(ncclCommSplit)                      \
  X(ncclCommSuspend)                    \
  X(ncclCommUserRank)                   \
  X(ncclCommWindowDeregister)           \
  X(ncclCommWindowRegister)             \
  X(ncclGather)                         \
  X(ncclGetErrorString)                 \
  X(ncclGetLastError)                   \
  X(ncclGetUniqueId)                    \
  X(ncclGetVersion)                     \
  X(ncclGroupEnd)                       \
  X(ncclGroupSimulateEnd)               \
  X(ncclGroupStart)                     \
  X(ncclMemAlloc)                       \
  X(ncclMemFree)                        \
  X(ncclRecv)                           \
  X(ncclRedOpCreatePreMulSum)           \
  X(ncclRedOpDestroy)                   \
  X(ncclReduce)                         \
  X(ncclReduceScatter)                  \
  X(ncclScatter)                        \
  X(ncclSend)

namespace commpool::internal::testing {

// The functions of both libraries, found in the same way as the library under test does.
struct Libraries {
#define COMMPOOL_TEST_MEMBER(name) decltype(&::name) name = nullptr;
  COMMPOOL_TEST_DRIVER_FUNCTIONS(COMMPOOL_TEST_MEMBER)
  COMMPOOL_TEST_NCCL_FUNCTIONS(COMMPOOL_TEST_MEMBER)
#undef COMMPOOL_TEST_MEMBER
};
const Libraries& Api();

// Device memory on the current context's device, freed at the end of the block.
enum class MemoryKind { kVirtual, kPlain };  // cuMemCreate with a file descriptor, or cuMemAlloc
class DeviceMemory {
 public:
  DeviceMemory(int device, size_t bytes, MemoryKind kind = MemoryKind::kVirtual,
               CUmemLocationType location = CU_MEM_LOCATION_TYPE_DEVICE,
               CUmemAllocationHandleType handles = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  char* data() const { return reinterpret_cast<char*>(address_); }
  size_t bytes() const { return bytes_; }

 private:
  MemoryKind kind_;
  size_t bytes_ = 0;
  CUdeviceptr address_ = 0;
};

// The value of `rank` at `index`: small whole numbers, exact in every type of 16 bits or more.
inline int Value(int rank, size_t index) { return static_cast<int>(index % 5) + rank; }

template <typename T>
std::vector<T> Values(int rank, size_t count) {
  std::vector<T> values(count);
  for (size_t index = 0; index < count; ++index) values[index] = static_cast<T>(Value(rank, index));
  return values;
}

template <typename T>
void Upload(void* target, const std::vector<T>& values) {
  ASSERT_EQ(Api().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(target), values.data(), values.size() * sizeof(T)),
            CUDA_SUCCESS);
  ASSERT_EQ(Api().cuStreamSynchronize(nullptr), CUDA_SUCCESS);  // a pageable copy may still run
}

template <typename T>
std::vector<T> Download(const void* source, size_t count) {
  std::vector<T> values(count);
  EXPECT_EQ(Api().cuMemcpyDtoH(values.data(), reinterpret_cast<CUdeviceptr>(source), count * sizeof(T)), CUDA_SUCCESS);
  return values;
}

// Makes a device's primary context current in this thread, for a block.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int device_;
};

// One rank; its device has the same number.
struct Rank {
  int rank = 0;
  int ranks = 0;
  ncclComm_t comm = nullptr;
  CUstream stream = nullptr;

  // Waits for its launches.
  void Synchronize() const { ASSERT_EQ(Api().cuStreamSynchronize(stream), CUDA_SUCCESS); }
};

// Must succeed.
ncclWindow_t RegisterWindow(const Rank& rank, void* buffer, size_t bytes, int flags = 0);

// Runs `body` once for each rank, each on its own thread, between initialisation and destruction. A body that destroys
// or aborts its communicator sets `comm` to null.
void RunRanks(int ranks, const std::function<void(Rank&)>& body);

// Runs the body in a process that has made no call yet, with this one's environment: NCCL reads its variables once.
void InANewProcess(const std::function<void()>& body);

// At the end of each test the emulator must have no leaks and no broken rules, but those that the test has taken.
class EmulatedNccl : public ::testing::Test {
 protected:
  void TearDown() override;
  // Returns the broken rules so far, one line each, and forgets them.
  static std::string TakeReports();
};

}  // namespace commpool::internal::testing
