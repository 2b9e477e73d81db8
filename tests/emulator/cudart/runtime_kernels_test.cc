// Kernels of modules on the emulated runtime: registered by name, run where the emulator knows them, else refused.
#include <array>
#include <string>

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

// vectorized_elementwise_kernel<4, FillFunctor<float>, std::array<char*, 1>, false>, as PyTorch 2.15 registers it.
constexpr const char* kFill =
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EELb0EEEviT0_T1_";
constexpr const char* kAdd =
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EELb0EEEviT0_T1_";

class RuntimeKernels : public RuntimeTest {
 protected:
  static constexpr int kCount = kBytes / sizeof(float);

  // Stands for a kernel in its module.
  static const void* Register(const char* name) {
    static std::array<char, 8> entries;
    static size_t next = 0;
    const char* const entry = &entries.at(next++);
    COMMPOOL_RUNTIME(__cudaRegisterFunction)
    (nullptr, entry, nullptr, name, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
    return entry;
  }

  static cudaError_t LaunchFill(const void* entry, void* memory, float value, cudaStream_t stream) {
    int count = kCount;
    void* tensors[] = {memory};
    void* arguments[] = {&count, &value, tensors};
    return COMMPOOL_RUNTIME(cudaLaunchKernel)(entry, dim3(1), dim3(128), arguments, 0, stream);
  }

  std::vector<float> Floats(const void* memory) {
    std::vector<float> content(kCount);
    EXPECT_EQ(COMMPOOL_RUNTIME(cudaMemcpy)(content.data(), memory, kBytes, cudaMemcpyDeviceToHost), cudaSuccess);
    return content;
  }
};

TEST_F(RuntimeKernels, FillInTheOrderOfTheirStream) {
  const void* const fill = Register(kFill);
  cudaStream_t const stream = MakeStream();
  void* const memory = Allocate();
  EXPECT_EQ(LaunchFill(fill, memory, 1, stream), cudaSuccess);
  EXPECT_EQ(LaunchFill(fill, memory, 2.5, stream), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaStreamSynchronize)(stream), cudaSuccess);
  EXPECT_EQ(Floats(memory), std::vector<float>(kCount, 2.5));
}

TEST_F(RuntimeKernels, AreHeldAgainstOtherStreams) {
  const void* const fill = Register(kFill);
  void* const memory = Allocate();
  EXPECT_EQ(LaunchFill(fill, memory, 1, MakeStream()), cudaSuccess);
  EXPECT_EQ(LaunchFill(fill, memory, 2, MakeStream()), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaDeviceSynchronize)(), cudaSuccess);
  const std::string reports = TakeReports();
  EXPECT_NE(reports.find("race"), std::string::npos);
  EXPECT_NE(reports.find("FillFunctor<float>"), std::string::npos) << reports;
}

TEST_F(RuntimeKernels, AreRepeatedByGraphs) {
  const void* const add = Register(kAdd);
  cudaStream_t const stream = MakeStream();
  void* const memory = Allocate();
  ASSERT_EQ(LaunchFill(Register(kFill), memory, 1, stream), cudaSuccess);
  ASSERT_EQ(COMMPOOL_RUNTIME(cudaStreamBeginCapture)(stream, cudaStreamCaptureModeRelaxed), cudaSuccess);
  {
    int count = kCount;
    float scale = 2;
    void* tensors[] = {memory, memory, memory};
    void* arguments[] = {&count, &scale, tensors};
    cudaKernel_t kernel = nullptr;
    ASSERT_EQ(COMMPOOL_RUNTIME(__cudaGetKernel)(&kernel, add), cudaSuccess);
    EXPECT_EQ(COMMPOOL_RUNTIME(__cudaLaunchKernel)(kernel, dim3(1), dim3(128), arguments, 0, stream), cudaSuccess);
  }
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(COMMPOOL_RUNTIME(cudaStreamEndCapture)(stream, &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(COMMPOOL_RUNTIME(cudaGraphInstantiate)(&executable, graph, 0), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaGraphDestroy)(graph), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaGraphLaunch)(executable, stream), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaGraphLaunch)(executable, stream), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaStreamSynchronize)(stream), cudaSuccess);
  EXPECT_EQ(Floats(memory), std::vector<float>(kCount, 9)) << "tripled twice";
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaGraphExecDestroy)(executable), cudaSuccess);
}

TEST_F(RuntimeKernels, ThatAreNotKnownHaveNoImage) {
  const void* const unknown = Register("_ZN5thing4workEPf");
  EXPECT_EQ(LaunchFill(unknown, Allocate(), 1, nullptr), cudaErrorNoKernelImageForDevice);
  EXPECT_NE(
      std::string(COMMPOOL_RUNTIME(cudaGetErrorString)(cudaErrorNoKernelImageForDevice)).find("thing::work(float*)"),
      std::string::npos);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaGetLastError)(), cudaErrorNoKernelImageForDevice);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaGetLastError)(), cudaSuccess) << "the context goes on";
  cudaFuncAttributes attributes;
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaFuncGetAttributes)(&attributes, unknown), cudaErrorNoKernelImageForDevice);
  EXPECT_EQ(LaunchFill(&attributes, Allocate(), 1, nullptr), cudaErrorInvalidDeviceFunction) << "no kernel at all";
}

TEST_F(RuntimeKernels, MayTouchTheirDevicesMemoryOnly) {
  const void* const fill = Register(kFill);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaSetDevice)(2), cudaSuccess);
  void* const elsewhere = Allocate();
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaSetDevice)(0), cudaSuccess);
  EXPECT_EQ(LaunchFill(fill, elsewhere, 1, nullptr), cudaErrorIllegalAddress);
  EXPECT_NE(TakeReports().find("access that is not granted"), std::string::npos);
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
