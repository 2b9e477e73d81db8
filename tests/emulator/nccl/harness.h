// Shared by the tests of the emulated NCCL: both libraries, opened as a program would; buffers; ranks as threads.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "src/emulator/extension.h"
#include "src/library/driver/tables.h"

#define COMMPOOL_TEST_DRIVER_FUNCTIONS(X) \
  X(commpoolEmulatorClearFaults)          \
  X(commpoolEmulatorClearReports)         \
  X(commpoolEmulatorInjectFault)          \
  X(commpoolEmulatorLeaks)                \
  X(commpoolEmulatorNvls)                 \
  X(commpoolEmulatorReports)

#define COMMPOOL_TEST_NCCL_FUNCTIONS(X) \
  X(ncclAlltoAll)                       \
  X(ncclBcast)                          \
  X(ncclCommFinalize)                   \
  X(ncclGather)                         \
  X(ncclGroupSimulateEnd)               \
  X(ncclScatter)

namespace commpool::internal::testing {

// The functions of both libraries: those of the library under test, and more. No release hides any here.
struct Libraries : CudaDriver, NcclLibrary {
#define COMMPOOL_TEST_MEMBER(name) decltype(&::name) name = nullptr;
  COMMPOOL_TEST_DRIVER_FUNCTIONS(COMMPOOL_TEST_MEMBER)
  COMMPOOL_TEST_NCCL_FUNCTIONS(COMMPOOL_TEST_MEMBER)
#undef COMMPOOL_TEST_MEMBER
};
const Libraries& Api();

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

// Maps one new physical memory at reserved addresses, with access for the device.
void MapNewMemory(int device, CUdeviceptr address, size_t bytes,
                  CUmemLocationType location = CU_MEM_LOCATION_TYPE_DEVICE,
                  CUmemAllocationHandleType handles = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

// Device memory on the current context's device, in whole units of 2 MiB; freed at the end of the block.
enum class MemoryKind { kVirtual, kPlain };  // cuMemCreate with a file descriptor, or cuMemAlloc
class DeviceMemory {
 public:
  DeviceMemory(int device, size_t bytes, MemoryKind kind = MemoryKind::kVirtual,
               CUmemLocationType location = CU_MEM_LOCATION_TYPE_DEVICE,
               CUmemAllocationHandleType handles = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  // Begins with these values.
  template <typename T>
  DeviceMemory(int device, const std::vector<T>& values) : DeviceMemory(device, values.size() * sizeof(T)) {
    Upload(data(), values);
  }
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

  ncclResult_t AllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                         ncclRedOp_t operation = ncclSum) const {
    return Api().ncclAllReduce(send, receive, count, type, operation, comm, stream);
  }
  ncclResult_t AllReduce(const DeviceMemory& memory, size_t count, ncclDataType_t type) const {  // in place
    return AllReduce(memory.data(), memory.data(), count, type);
  }
  // Waits for its launches. The other reads what they wrote.
  void Synchronize() const { ASSERT_EQ(Api().cuStreamSynchronize(stream), CUDA_SUCCESS); }
  template <typename T>
  std::vector<T> Result(const void* source, size_t count) const {
    Synchronize();
    return Download<T>(source, count);
  }
  // The end of its communicator before the end of the body.
  void Abort();
  void Destroy();
};

// Must succeed.
ncclUniqueId NewId();
ncclWindow_t RegisterWindow(const Rank& rank, void* buffer, size_t bytes, int flags = 0,
                            const char* file = __builtin_FILE(), int line = __builtin_LINE());
ncclWindow_t RegisterWindow(const Rank& rank, const DeviceMemory& memory, int flags = 0,
                            const char* file = __builtin_FILE(), int line = __builtin_LINE());
void EndWindow(const Rank& rank, ncclWindow_t window, const char* file = __builtin_FILE(), int line = __builtin_LINE());
// Must fail with this result, and give no window.
void ExpectNoWindow(const Rank& rank, void* buffer, size_t bytes, ncclResult_t expected = ncclInvalidArgument,
                    int flags = 0, const char* file = __builtin_FILE(), int line = __builtin_LINE());
inline std::string LastError() { return Api().ncclGetLastError(nullptr); }
int RankIn(ncclComm_t comm);
int SizeOf(ncclComm_t comm);
ncclResult_t AsyncError(ncclComm_t comm);
ncclResult_t WaitForAsyncError(ncclComm_t comm);
// The graph of what `submit` submits to the rank's stream; destroyed with its last owner.
std::shared_ptr<CUgraphExec_st> Capture(const Rank& rank, const std::function<void()>& submit);

// For a block: a window, a local registration, a communicator that was split off. Beginning and end must succeed.
using OfWindow = std::remove_pointer_t<ncclWindow_t>;
std::shared_ptr<OfWindow> ScopedWindow(const Rank& rank, const DeviceMemory& memory, int flags = 0);
std::shared_ptr<void> ScopedHandle(const Rank& rank, void* buffer, size_t bytes);
std::shared_ptr<void> ScopedHandle(const Rank& rank, const DeviceMemory& memory);
std::shared_ptr<ncclComm> ScopedChild(ncclComm_t parent, int color = 0, int key = 0, ncclConfig_t* config = nullptr);
// The same of a communicator without one of its ranks.
std::shared_ptr<ncclComm> ScopedShrunk(ncclComm_t parent, int excluded, int flags = NCCL_SHRINK_DEFAULT);

// The sum of one number from each rank.
int SumOver(const Rank& rank, ncclComm_t comm, int value);

// How a communicator is made; ncclCommInitRank unless a test has another way.
using Initialize = std::function<void(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank)>;
void InitializeRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank);
// Runs `body` as one of the ranks, between initialisation and destruction. A body that destroys or aborts its
// communicator calls Destroy or Abort of its Rank.
void RunRank(int rank, int ranks, const ncclUniqueId& id, const std::function<void(Rank&)>& body,
             const Initialize& initialize = InitializeRank);
// Runs `body` once for each rank, each on its own thread.
void RunRanks(int ranks, const std::function<void(Rank&)>& body, const Initialize& initialize = InitializeRank);
// The same with 2 MiB of its device's memory for each rank.
void RunRanks(int ranks, const std::function<void(Rank&, const DeviceMemory&)>& body);

// Runs the body in a process that has made no call yet, with this one's environment: NCCL reads its variables once. The
// other sets a variable for it.
void InANewProcess(const std::function<void()>& body);
void InANewProcessWith(const char* variable, const char* value, const std::function<void()>& body);

// The whole file, such as a log.
std::string Read(const char* file);

// At the end of each test the emulator must have no leaks and no broken rules, but those that the test has taken.
class EmulatedNccl : public ::testing::Test {
 protected:
  void TearDown() override;
  // Returns the broken rules so far, one line each, and forgets them. The other expects these words in them.
  static std::string TakeReports();
  static void ExpectReport(const std::string& words);
  static void ExpectReports(const std::vector<std::string>& words);  // each of them
};

}  // namespace commpool::internal::testing
