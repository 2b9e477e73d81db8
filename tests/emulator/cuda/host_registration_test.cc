// Registered host memory: what hardware leaves undefined is refused or reported.
#include <sys/mman.h>

#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class HostRegistrations : public MachineTest {
 protected:
  static void SetUpTestSuite() { DeclareMachine("host_memory=64MiB"); }
  static constexpr unsigned kForAll = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;

  HostRegistrations() : pages_(mmap(nullptr, kUnit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~HostRegistrations() override { munmap(pages_, kUnit); }

  void* pages() const { return pages_; }
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(pages_); }

 private:
  void* const pages_;
};

TEST_F(HostRegistrations, LastWithTheAddresses) {
  void* const gone = mmap(nullptr, kUnit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(gone, kUnit);
  EXPECT_EQ(cuda().cuMemHostRegister(gone, kUnit, kForAll), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HostRegistrations, AreOfTheProgramsMemoryAlone) {
  const CUdeviceptr device = Allocate();
  EXPECT_EQ(cuda().cuMemHostRegister(reinterpret_cast<void*>(device), kUnit, kForAll), CUDA_ERROR_INVALID_VALUE);
  void* pinned = nullptr;
  ASSERT_EQ(cuda().cuMemAllocHost(&pinned, 4096), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemHostRegister(pinned, 4096, kForAll), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(cuda().cuMemHostUnregister(pinned), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(cuda().cuMemFreeHost(pinned), CUDA_SUCCESS);
}

TEST_F(HostRegistrations, EndByTheirOwnCallAtTheirStart) {
  ASSERT_EQ(cuda().cuMemHostRegister(pages(), kUnit, kForAll), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemFreeHost(pages()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuMemHostUnregister(static_cast<char*>(pages()) + 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuMemHostUnregister(pages()), CUDA_SUCCESS);
}

TEST_F(HostRegistrations, LetKernelsUseTheMemoryWhileTheyLast) {
  const CUstream stream = MakeStream();
  ASSERT_EQ(cuda().cuMemHostRegister(pages(), kUnit, kForAll), CUDA_SUCCESS);
  EXPECT_EQ(Launch(stream, {{address(), 4096}}), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemHostUnregister(pages()), CUDA_SUCCESS);
  unsigned type = 0;
  EXPECT_EQ(cuda().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address()), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HostRegistrations, CountAgainstTheHostsMemory) {
  constexpr uint64_t kTooMuch = uint64_t{65} << 20;
  void* const large = mmap(nullptr, kTooMuch, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_EQ(cuda().cuMemHostRegister(large, kTooMuch, kForAll), CUDA_ERROR_OUT_OF_MEMORY);
  munmap(large, kTooMuch);
}

TEST_F(HostRegistrations, ThatAreLeftAreLeaks) {
  ASSERT_EQ(cuda().cuMemHostRegister(pages(), kUnit, kForAll), CUDA_SUCCESS);
  EXPECT_TRUE(AnyContains(EmulatorLeaks(), "registered host memory"));
  EXPECT_EQ(cuda().cuMemHostUnregister(pages()), CUDA_SUCCESS);
  EXPECT_FALSE(AnyContains(EmulatorLeaks(), "registered host memory"));
}

// Last, because it loses the context.
TEST_F(HostRegistrations, ThatEndUnderWorkToComeAreReported) {
  ASSERT_EQ(cuda().cuMemHostRegister(pages(), kUnit, kForAll), CUDA_SUCCESS);
  const CUstream stream = MakeStream();
  Gate gate(stream);
  EXPECT_EQ(Launch(stream, {{address(), 4096}}), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemHostUnregister(pages()), CUDA_SUCCESS);
  gate.Open();
  EXPECT_NE(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_TRUE(AnyContains(TakeReports(), "cuMemHostUnregister while"));
}

}  // namespace
}  // namespace commpool::internal::testing
