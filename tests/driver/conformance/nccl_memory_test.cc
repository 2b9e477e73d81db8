// ncclMemAlloc and ncclCommRegister: their results and grants.
#include <cuda.h>
#include <nccl.h>

#include "src/library/base/bytes.h"
#include "src/library/driver/device_info.h"
#include "tests/driver/conformance/nccl_fixture.h"

namespace commpool::internal::testing {
namespace {

class NcclMemory : public NcclTest {
 protected:
  void SetUp() override {
    NcclTest::SetUp();
    if (!IsSkipped() && !nccl().has_local_registration()) GTEST_SKIP() << nccl().WhyNoLocalRegistration();
    if (!IsSkipped()) Connect(1);
  }
};

TEST_F(NcclMemory, IsAlignedAndRoundedToTheRecommendedGranularity) {
  ContextGuard current(driver(), ranks()[0].context);
  const uint64_t granularity = GranularityAt(driver(), DeviceLocation(0));
  void* memory = nullptr;
  ASSERT_EQ(nccl().ncclMemAlloc(&memory, granularity + 1), ncclSuccess);
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  EXPECT_EQ(address % granularity, 0u);
  size_t bytes = 0;
  EXPECT_EQ(cuda().cuMemGetAddressRange(nullptr, &bytes, address), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 2 * granularity);
  EXPECT_EQ(nccl().ncclMemFree(memory), ncclSuccess);
}

TEST_F(NcclMemory, IsExportableAsAFileDescriptor) {
  ContextGuard current(driver(), ranks()[0].context);
  void* memory = nullptr;
  ASSERT_EQ(nccl().ncclMemAlloc(&memory, kMiB), ncclSuccess);
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(cuda().cuMemRetainAllocationHandle(&handle, memory), CUDA_SUCCESS);
  CUmemAllocationProp properties = {};
  EXPECT_EQ(cuda().cuMemGetAllocationPropertiesFromHandle(&properties, handle), CUDA_SUCCESS);
  EXPECT_NE(properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  EXPECT_EQ(cuda().cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(nccl().ncclMemFree(memory), ncclSuccess);
}

TEST_F(NcclMemory, IsGrantedToEveryReachablePeer) {
  COMMPOOL_REQUIRE_DEVICES(2);
  ContextGuard current(driver(), ranks()[0].context);
  void* memory = nullptr;
  ASSERT_EQ(nccl().ncclMemAlloc(&memory, kMiB), ncclSuccess);
  for (const int peer : DescribeDevice(driver(), 0).value().reachable_peers) {
    const CUmemLocation location = DeviceLocation(peer);
    unsigned long long flags = 0;
    EXPECT_EQ(cuda().cuMemGetAccess(&flags, &location, reinterpret_cast<CUdeviceptr>(memory)), CUDA_SUCCESS);
    EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) << "peer " << peer;
  }
  EXPECT_EQ(nccl().ncclMemFree(memory), ncclSuccess);
}

TEST_F(NcclMemory, OfNoBytesIsANullPointer) {
  ContextGuard current(driver(), ranks()[0].context);
  void* memory = nullptr;
  EXPECT_EQ(nccl().ncclMemAlloc(&memory, 0), ncclSuccess);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(nccl().ncclMemFree(nullptr), ncclSuccess);
}

TEST_F(NcclMemory, RegisteredTwiceOrInPartHasOneHandle) {
  std::vector<MappedMemory> memories = MakeMappedOnEachRank(GranularityAt(driver(), DeviceLocation(0)));
  const CUdeviceptr address = memories[0].address();
  const ncclComm_t communicator = ranks()[0].communicator;
  ContextGuard kept(driver());
  void* whole = nullptr;
  void* again = nullptr;
  void* part = nullptr;
  ASSERT_EQ(nccl().ncclCommRegister(communicator, ToPointer(address), memories[0].bytes(), &whole), ncclSuccess);
  ASSERT_EQ(nccl().ncclCommRegister(communicator, ToPointer(address), memories[0].bytes(), &again), ncclSuccess);
  ASSERT_EQ(nccl().ncclCommRegister(communicator, ToPointer(address + 65536), 4096, &part), ncclSuccess);
  EXPECT_NE(whole, nullptr);
  EXPECT_EQ(again, whole);
  EXPECT_EQ(part, whole);
  for (void* handle : {whole, again, part}) {
    EXPECT_EQ(nccl().ncclCommDeregister(communicator, handle), ncclSuccess);
  }
}

TEST_F(NcclMemory, RegisteredWithAnOverlapHasAHandleOfItsOwn) {
  const uint64_t granularity = GranularityAt(driver(), DeviceLocation(0));
  std::vector<MappedMemory> memories = MakeMappedOnEachRank(2 * granularity);
  const CUdeviceptr address = memories[0].address();
  const ncclComm_t communicator = ranks()[0].communicator;
  ContextGuard kept(driver());
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_EQ(nccl().ncclCommRegister(communicator, ToPointer(address), granularity, &first), ncclSuccess);
  ASSERT_EQ(nccl().ncclCommRegister(communicator, ToPointer(address + granularity / 2), granularity, &second),
            ncclSuccess);
  EXPECT_NE(second, first);
  EXPECT_EQ(nccl().ncclCommDeregister(communicator, second), ncclSuccess);
  EXPECT_EQ(nccl().ncclCommDeregister(communicator, first), ncclSuccess);
}

TEST_F(NcclMemory, OfCudaMallocIsRegisteredToo) {
  ContextGuard current(driver(), ranks()[0].context);
  CUdeviceptr address = 0;
  ASSERT_EQ(cuda().cuMemAlloc(&address, kMiB), CUDA_SUCCESS);
  void* handle = nullptr;
  EXPECT_EQ(nccl().ncclCommRegister(ranks()[0].communicator, ToPointer(address), kMiB, &handle), ncclSuccess);
  EXPECT_EQ(nccl().ncclCommDeregister(ranks()[0].communicator, handle), ncclSuccess);
  EXPECT_EQ(cuda().cuMemFree(address), CUDA_SUCCESS);
}

TEST_F(NcclMemory, AsAWindowBeginsAtAMultipleOf4096) {
  COMMPOOL_REQUIRE_EMULATOR("NCCL 2.28.9 leaks a registration when it refuses (src/dev_runtime.cc)");
  std::vector<MappedMemory> memories = MakeMappedOnEachRank(GranularityAt(driver(), DeviceLocation(0)));
  ncclWindow_t window = nullptr;
  EXPECT_EQ(nccl().ncclCommWindowRegister(ranks()[0].communicator, ToPointer(memories[0].address() + 100), 4096,
                                          &window, NCCL_WIN_COLL_SYMMETRIC),
            ncclInvalidArgument);
  EXPECT_EQ(window, nullptr);
}

}  // namespace
}  // namespace commpool::internal::testing
