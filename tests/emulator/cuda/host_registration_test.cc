// Registered host memory: what hardware leaves undefined is refused or reported.
#include <sys/mman.h>

#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class HostRegistrations : public MachineTest {
 protected:
  static void SetUpTestSuite() { DeclareMachine("host_memory=64MiB"); }
  static constexpr unsigned kForAll = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;

  ~HostRegistrations() override { munmap(pages_, kUnit); }

  static void* NewPages(size_t bytes) {
    return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  CUresult Register(void* pages, size_t bytes = kUnit) { return cuda().cuMemHostRegister(pages, bytes, kForAll); }
  void End() { EXPECT_EQ(cuda().cuMemHostUnregister(pages_), CUDA_SUCCESS); }
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(pages_); }

  void* const pages_ = NewPages(kUnit);
};

TEST_F(HostRegistrations, LastWithTheAddresses) {
  void* const gone = NewPages(kUnit);
  munmap(gone, kUnit);
  EXPECT_EQ(Register(gone), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HostRegistrations, AreOfTheProgramsMemoryAlone) {
  const CUdeviceptr device = Allocate();
  EXPECT_EQ(Register(reinterpret_cast<void*>(device)), CUDA_ERROR_INVALID_VALUE);
  void* pinned = nullptr;
  ASSERT_EQ(cuda().cuMemAllocHost(&pinned, 4096), CUDA_SUCCESS);
  EXPECT_EQ(Register(pinned, 4096), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(cuda().cuMemHostUnregister(pinned), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(cuda().cuMemFreeHost(pinned), CUDA_SUCCESS);
}

TEST_F(HostRegistrations, EndByTheirOwnCallAtTheirStart) {
  ASSERT_EQ(Register(pages_), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemFreeHost(pages_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuMemHostUnregister(static_cast<char*>(pages_) + 4096), CUDA_ERROR_INVALID_VALUE);
  End();
}

TEST_F(HostRegistrations, LetKernelsUseTheMemoryWhileTheyLast) {
  const CUstream stream = MakeStream();
  ASSERT_EQ(Register(pages_), CUDA_SUCCESS);
  EXPECT_EQ(Launch(stream, {{address(), 4096}}), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  End();
  unsigned type = 0;
  EXPECT_EQ(cuda().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address()), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HostRegistrations, CountAgainstTheHostsMemory) {
  constexpr uint64_t kTooMuch = uint64_t{65} << 20;
  void* const large = NewPages(kTooMuch);
  EXPECT_EQ(Register(large, kTooMuch), CUDA_ERROR_OUT_OF_MEMORY);
  munmap(large, kTooMuch);
}

TEST_F(HostRegistrations, ThatAreLeftAreLeaks) {
  ASSERT_EQ(Register(pages_), CUDA_SUCCESS);
  EXPECT_TRUE(AnyContains(EmulatorLeaks(), "registered host memory"));
  End();
  EXPECT_FALSE(AnyContains(EmulatorLeaks(), "registered host memory"));
}

// Last, because it loses the context.
TEST_F(HostRegistrations, ThatEndUnderWorkToComeAreReported) {
  ASSERT_EQ(Register(pages_), CUDA_SUCCESS);
  const CUstream stream = MakeStream();
  Gate gate(stream);
  EXPECT_EQ(Launch(stream, {{address(), 4096}}), CUDA_SUCCESS);
  End();
  gate.Open();
  EXPECT_NE(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_TRUE(AnyContains(TakeReports(), "cuMemHostUnregister while"));
}

}  // namespace
}  // namespace commpool::internal::testing
