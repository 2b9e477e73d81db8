// Kernels of modules on the emulated runtime: registered by name, muted where a thread asks for that, else refused.
#include <array>
#include <string>
#include <vector>

#include "tests/emulator/cudart/runtime_fixture.h"

extern "C" {
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*);
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*);
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, cudaStream_t);
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*);
}

namespace commpool::internal::testing {
namespace {

class RuntimeKernels : public RuntimeTest {
 protected:
  // Stands for a kernel in its module.
  static const void* Register(const char* name) {
    static std::array<char, 8> entries;
    static size_t next = 0;
    const char* const entry = &entries.at(next++);
    COMMPOOL_RUNTIME(__cudaRegisterFunction)
    (nullptr, entry, nullptr, name, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
    return entry;
  }

  static cudaError_t Launch(const void* entry) {
    return COMMPOOL_RUNTIME(cudaLaunchKernel)(entry, dim3(1), dim3(128), nullptr, 0, nullptr);
  }
};

TEST_F(RuntimeKernels, ThatAreNotKnownHaveNoImage) {
  const void* const unknown = Register("_ZN5thing4workEPf");
  EXPECT_EQ(Launch(unknown), cudaErrorNoKernelImageForDevice);
  EXPECT_NE(
      std::string(COMMPOOL_RUNTIME(cudaGetErrorString)(cudaErrorNoKernelImageForDevice)).find("kernel thing::work"),
      std::string::npos);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaGetLastError)(), cudaErrorNoKernelImageForDevice);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaGetLastError)(), cudaSuccess) << "the context goes on";
  cudaFuncAttributes attributes;
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaFuncGetAttributes)(&attributes, unknown), cudaErrorNoKernelImageForDevice);
  EXPECT_EQ(Launch(&attributes), cudaErrorInvalidDeviceFunction) << "no kernel at all";
}

TEST_F(RuntimeKernels, DoNothingWhileTheThreadIsMuted) {
  const void* const unknown = Register("_ZN5thing4workEPf");
  COMMPOOL_RUNTIME(commpoolEmulatorMuteBegin)();
  EXPECT_EQ(Launch(unknown), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMemsetAsync)(Allocate(), 1, kBytes, nullptr), cudaSuccess);
  const commpoolEmulatorMuted seen = COMMPOOL_RUNTIME(commpoolEmulatorMuteEnd)();
  EXPECT_EQ(seen.launches, 2u);
  EXPECT_EQ(seen.must_run_at_once, 0);
  EXPECT_EQ(Launch(unknown), cudaErrorNoKernelImageForDevice);
}

TEST_F(RuntimeKernels, AreNotMutedForAHostThatLooks) {
  void* const memory = Allocate();
  std::vector<char> content(kBytes);
  COMMPOOL_RUNTIME(commpoolEmulatorMuteBegin)();
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMemcpy)(content.data(), memory, kBytes, cudaMemcpyDeviceToHost), cudaErrorNotReady);
  EXPECT_EQ(COMMPOOL_RUNTIME(commpoolEmulatorMuteEnd)().must_run_at_once, 1);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaGetLastError)(), cudaErrorNotReady);
}

TEST_F(RuntimeKernels, TakeTheirConfigurationFromTheLastPush) {
  cudaStream_t const stream = MakeStream();
  EXPECT_EQ(COMMPOOL_RUNTIME(__cudaPushCallConfiguration)(dim3(3), dim3(4), 5, stream), 0u);
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  cudaStream_t found = nullptr;
  EXPECT_EQ(COMMPOOL_RUNTIME(__cudaPopCallConfiguration)(&grid, &block, &shared_bytes, &found), cudaSuccess);
  EXPECT_EQ(grid.x, 3u);
  EXPECT_EQ(block.x, 4u);
  EXPECT_EQ(shared_bytes, 5u);
  EXPECT_EQ(found, stream);
  EXPECT_EQ(COMMPOOL_RUNTIME(__cudaPopCallConfiguration)(&grid, &block, &shared_bytes, &found),
            cudaErrorMissingConfiguration);
}

}  // namespace
}  // namespace commpool::internal::testing
