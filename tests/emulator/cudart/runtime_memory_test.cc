// Memory and copies of the emulated runtime.
#include <algorithm>
#include <cstdint>

#include "tests/emulator/cudart/runtime_fixture.h"

namespace commpool::internal::testing {
namespace {

class RuntimeMemory : public RuntimeTest {};

TEST_F(RuntimeMemory, IsCopiedBothWays) {
  void* const memory = Allocate();
  std::vector<char> content(kBytes, 7);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMemcpy)(memory, content.data(), kBytes, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(Download(memory), content);
  void* const other = Allocate();
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMemcpy)(other, memory, kBytes, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(Download(other), content);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMemset)(other, 9, kBytes), cudaSuccess);
  EXPECT_EQ(Download(other), std::vector<char>(kBytes, 9));
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMemcpy)(other, memory, kBytes, static_cast<cudaMemcpyKind>(7)),
            cudaErrorInvalidMemcpyDirection);
}

TEST_F(RuntimeMemory, OfNoBytesIsNone) {
  void* memory = this;
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMalloc)(&memory, 0), cudaSuccess);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaFree)(nullptr), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaFreeHost)(nullptr), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMalloc)(nullptr, 1), cudaErrorInvalidValue);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMalloc)(&memory, size_t{1} << 50), cudaErrorMemoryAllocation);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaGetLastError)(), cudaErrorMemoryAllocation);
}

TEST_F(RuntimeMemory, SaysWhereItLies) {
  const cudaPointerAttributes attributes = AttributesOf(static_cast<char*>(Allocate()) + 8);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 0);
  EXPECT_EQ(attributes.hostPointer, nullptr);
  void* pinned = nullptr;
  ASSERT_EQ(COMMPOOL_RUNTIME(cudaHostAlloc)(&pinned, kBytes, cudaHostAllocDefault), cudaSuccess);
  void* mapped = nullptr;
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaHostGetDevicePointer)(&mapped, pinned, 0), cudaSuccess);
  EXPECT_EQ(mapped, pinned);
  std::fill_n(static_cast<char*>(pinned), kBytes, char{5});  // the host may use it
  EXPECT_EQ(AttributesOf(pinned).type, cudaMemoryTypeHost);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaFreeHost)(pinned), cudaSuccess);
  EXPECT_EQ(AttributesOf(&attributes).type, cudaMemoryTypeUnregistered);
}

TEST_F(RuntimeMemory, IsCopiedRowByRow) {
  void* const memory = Allocate();
  ASSERT_EQ(COMMPOOL_RUNTIME(cudaMemset)(memory, 0, kBytes), cudaSuccess);
  const std::vector<char> rows = {1, 2, 3, 4, 5, 6};
  cudaStream_t const stream = MakeStream();
  const auto copy = [&](size_t pitch) {
    return COMMPOOL_RUNTIME(cudaMemcpy2DAsync)(memory, pitch, rows.data(), 3, 3, 2, cudaMemcpyHostToDevice, stream);
  };
  ASSERT_EQ(COMMPOOL_RUNTIME(cudaDeviceSynchronize)(), cudaSuccess);
  EXPECT_EQ(copy(8), cudaSuccess);
  ASSERT_EQ(COMMPOOL_RUNTIME(cudaStreamSynchronize)(stream), cudaSuccess);
  std::vector<char> content = Download(memory);
  content.resize(12);
  EXPECT_EQ(content, (std::vector<char>{1, 2, 3, 0, 0, 0, 0, 0, 4, 5, 6, 0}));
  EXPECT_EQ(copy(2), cudaErrorInvalidPitchValue);
}

TEST_F(RuntimeMemory, IsCopiedBetweenDevices) {
  void* const here = Allocate();
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMemset)(here, 3, kBytes), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaSetDevice)(1), cudaSuccess);
  void* const there = Allocate();
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaSetDevice)(0), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMemcpyPeerAsync)(there, 1, here, 0, kBytes, nullptr), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaDeviceSynchronize)(), cudaSuccess);
  EXPECT_EQ(Download(there), std::vector<char>(kBytes, 3));
}

TEST_F(RuntimeMemory, OfStreamsComesFromThePool) {
  const cudaMemPool_t pool = Get(COMMPOOL_RUNTIME(cudaDeviceGetDefaultMemPool), 0);
  uint64_t threshold = UINT64_MAX;
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMemPoolSetAttribute)(pool, cudaMemPoolAttrReleaseThreshold, &threshold), cudaSuccess);
  cudaStream_t const stream = MakeStream();
  void* memory = nullptr;
  ASSERT_EQ(COMMPOOL_RUNTIME(cudaMallocAsync)(&memory, kBytes, stream), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMemsetAsync)(memory, 1, kBytes, stream), cudaSuccess);
  uint64_t used = 0;
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMemPoolGetAttribute)(pool, cudaMemPoolAttrUsedMemCurrent, &used), cudaSuccess);
  EXPECT_GE(used, kBytes);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaFreeAsync)(memory, stream), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaStreamSynchronize)(stream), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMemPoolTrimTo)(pool, 0), cudaSuccess);
}

// That other processes open it, tests/driver/conformance/ipc_test says.
TEST_F(RuntimeMemory, HasAHandleThatItsOwnProcessCannotOpen) {
  const cudaIpcMemHandle_t handle = Get(COMMPOOL_RUNTIME(cudaIpcGetMemHandle), Allocate());
  void* opened = nullptr;
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaIpcOpenMemHandle)(&opened, handle, cudaIpcMemLazyEnablePeerAccess),
            cudaErrorDeviceUninitialized);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaIpcCloseMemHandle)(opened), cudaErrorInvalidValue);
  cudaEvent_t event = nullptr;
  ASSERT_EQ(COMMPOOL_RUNTIME(cudaEventCreateWithFlags)(&event, cudaEventDisableTiming | cudaEventInterprocess),
            cudaSuccess);
  const cudaIpcEventHandle_t event_handle = Get(COMMPOOL_RUNTIME(cudaIpcGetEventHandle), event);
  cudaEvent_t other = nullptr;
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaIpcOpenEventHandle)(&other, event_handle), cudaErrorDeviceUninitialized);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaEventDestroy)(event), cudaSuccess);
}

}  // namespace
}  // namespace commpool::internal::testing
