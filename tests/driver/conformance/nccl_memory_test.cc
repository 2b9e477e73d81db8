// ncclMemAlloc and ncclCommRegister: their results and grants.
#include <cuda.h>
#include <nccl.h>

#include <thread>

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

// Communicators made from others, and nonblocking communicators.

class NcclCommunicator : public NcclTest {
 protected:
  void SetUp() override {
    NcclTest::SetUp();
    if (IsSkipped()) return;
    COMMPOOL_REQUIRE_DEVICES(2);
    if (nccl().ncclCommSplit == nullptr) GTEST_SKIP() << "needs NCCL 2.18";
    Connect(2);
  }

  // A child of each rank's communicator, made by `split`.
  template <typename Split>
  std::vector<ncclComm_t> Children(const Split& split) {
    std::vector<ncclComm_t> children(ranks().size());
    Grouped([&](Rank& rank) { EXPECT_EQ(split(rank, &OfRank(children, rank)), ncclSuccess); });
    return children;
  }

  void ExpectPlace(ncclComm_t communicator, int expected_rank, int expected_size) {
    int value = -1;
    EXPECT_EQ(nccl().ncclCommUserRank(communicator, &value), ncclSuccess);
    EXPECT_EQ(value, expected_rank);
    EXPECT_EQ(nccl().ncclCommCount(communicator, &value), ncclSuccess);
    EXPECT_EQ(value, expected_size);
  }

  ncclResult_t Poll(ncclComm_t communicator) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
      EXPECT_EQ(nccl().ncclCommGetAsyncError(communicator, &state), ncclSuccess);
      std::this_thread::yield();
    }
    return state;
  }
};

TEST_F(NcclCommunicator, ASplitOrdersByKey) {
  const std::vector<ncclComm_t> children = Children([&](Rank& rank, ncclComm_t* child) {
    return nccl().ncclCommSplit(rank.communicator, 0, -rank.rank, child, nullptr);
  });
  ForEachRank([&](Rank& rank) {
    ExpectPlace(OfRank(children, rank), 1 - rank.rank, 2);
    EXPECT_EQ(nccl().ncclCommDestroy(OfRank(children, rank)), ncclSuccess);
  });
}

TEST_F(NcclCommunicator, ASplitWithoutAColourIsNull) {
  const std::vector<ncclComm_t> children = Children([&](Rank& rank, ncclComm_t* child) {
    const int color = rank.rank == 1 ? NCCL_SPLIT_NOCOLOR : 3;
    return nccl().ncclCommSplit(rank.communicator, color, 0, child, nullptr);
  });
  EXPECT_EQ(children[1], nullptr);
  ExpectPlace(children[0], 0, 1);
  ForEachRank([&](Rank& rank) { EXPECT_EQ(nccl().ncclCommDestroy(OfRank(children, rank)), ncclSuccess); });
}

TEST_F(NcclCommunicator, AShrinkLeavesRanksOut) {
  if (nccl().ncclCommShrink == nullptr) GTEST_SKIP() << "needs NCCL 2.27";
  ForEachRank([&](Rank& rank) {
    if (rank.rank == 1) return;
    int excluded[] = {1};
    ncclComm_t child = nullptr;
    ASSERT_EQ(nccl().ncclCommShrink(rank.communicator, excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT), ncclSuccess);
    ExpectPlace(child, 0, 1);
    EXPECT_EQ(nccl().ncclCommDestroy(child), ncclSuccess);
    int self[] = {0};
    EXPECT_NE(nccl().ncclCommShrink(rank.communicator, self, 1, &child, nullptr, NCCL_SHRINK_DEFAULT), ncclSuccess);
  });
}

TEST_F(NcclCommunicator, ANonblockingOneIsPolled) {
  ncclUniqueId id;
  ASSERT_EQ(nccl().ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  std::vector<ncclComm_t> communicators(ranks().size());
  ASSERT_EQ(nccl().ncclGroupStart(), ncclSuccess);
  ForEachRank([&](Rank& rank) {
    const ncclResult_t result = nccl().ncclCommInitRankConfig(&OfRank(communicators, rank), 2, id, rank.rank, &config);
    EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress);
  });
  EXPECT_EQ(nccl().ncclGroupEnd(), ncclInProgress);
  for (const ncclComm_t communicator : communicators) EXPECT_EQ(Poll(communicator), ncclSuccess);
  ForEachRank([&](Rank& rank) {
    ExpectPlace(OfRank(communicators, rank), rank.rank, 2);
    EXPECT_EQ(nccl().ncclCommAbort(OfRank(communicators, rank)), ncclSuccess);
  });
}

}  // namespace
}  // namespace commpool::internal::testing
