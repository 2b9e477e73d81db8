// ncclMemAlloc and ncclCommRegister: their results and grants.
#include <optional>
#include <thread>
#include <vector>

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
    if (IsSkipped()) return;
    Connect(1);
    current_.emplace(driver(), ranks()[0].context);
  }
  void TearDown() override {
    for (void* const memory : allocated_) EXPECT_EQ(nccl().ncclMemFree(memory), ncclSuccess);
  }

  uint64_t granularity() { return GranularityAt(driver(), DeviceLocation(0)); }
  CUdeviceptr Allocate(size_t bytes) {
    allocated_.push_back(nullptr);
    EXPECT_EQ(nccl().ncclMemAlloc(&allocated_.back(), bytes), ncclSuccess);
    return reinterpret_cast<CUdeviceptr>(allocated_.back());
  }
  void* Register(CUdeviceptr address, size_t bytes) {
    void* handle = nullptr;
    EXPECT_EQ(nccl().ncclCommRegister(ranks()[0].communicator, ToPointer(address), bytes, &handle), ncclSuccess);
    return handle;
  }
  void Deregister(void* handle) { EXPECT_EQ(nccl().ncclCommDeregister(ranks()[0].communicator, handle), ncclSuccess); }

 private:
  std::optional<ContextGuard> current_;
  std::vector<void*> allocated_;
};

TEST_F(NcclMemory, IsAlignedAndRoundedToTheRecommendedGranularity) {
  const CUdeviceptr address = Allocate(granularity() + 1);
  EXPECT_EQ(address % granularity(), 0u);
  size_t bytes = 0;
  EXPECT_EQ(cuda().cuMemGetAddressRange(nullptr, &bytes, address), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 2 * granularity());
}

TEST_F(NcclMemory, IsExportableAsAFileDescriptor) {
  PhysicalMemory memory = PhysicalMemory::At(driver(), Allocate(kMiB), kMiB);
  ASSERT_TRUE(memory.valid());
  const CUmemAllocationProp properties = Get(cuda().cuMemGetAllocationPropertiesFromHandle, memory.get());
  EXPECT_NE(properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  ExpectOk(memory.Release());
}

TEST_F(NcclMemory, IsGrantedToEveryReachablePeer) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const CUdeviceptr address = Allocate(kMiB);
  for (const int peer : DescribeDevice(driver(), 0).value().reachable_peers) {
    const CUmemLocation location = DeviceLocation(peer);
    EXPECT_EQ(Get(cuda().cuMemGetAccess, &location, address), CU_MEM_ACCESS_FLAGS_PROT_READWRITE) << "peer " << peer;
  }
}

TEST_F(NcclMemory, OfNoBytesIsANullPointer) { EXPECT_EQ(Allocate(0), 0u); }

TEST_F(NcclMemory, RegisteredTwiceOrInPartHasOneHandle) {
  const MappedMemory memory(driver(), DeviceLocation(0), granularity(), 0);
  void* const whole = Register(memory.address(), memory.bytes());
  EXPECT_NE(whole, nullptr);
  EXPECT_EQ(Register(memory.address(), memory.bytes()), whole) << "again";
  EXPECT_EQ(Register(memory.address() + 65536, 4096), whole) << "a part";
  for (int time = 0; time < 3; ++time) Deregister(whole);
}

TEST_F(NcclMemory, RegisteredWithAnOverlapHasAHandleOfItsOwn) {
  const MappedMemory memory(driver(), DeviceLocation(0), 2 * granularity(), 0);
  void* const first = Register(memory.address(), granularity());
  void* const second = Register(memory.address() + granularity() / 2, granularity());
  EXPECT_NE(second, first);
  Deregister(second);
  Deregister(first);
}

TEST_F(NcclMemory, OfCudaMallocIsRegisteredToo) {
  const CUdeviceptr address = Get(cuda().cuMemAlloc, kMiB);
  Deregister(Register(address, kMiB));
  EXPECT_EQ(cuda().cuMemFree(address), CUDA_SUCCESS);
}

TEST_F(NcclMemory, AsAWindowBeginsAtAMultipleOf4096) {
  COMMPOOL_REQUIRE_EMULATOR("NCCL 2.28.9 leaks a registration when it refuses (src/dev_runtime.cc)");
  const MappedMemory memory(driver(), DeviceLocation(0), granularity(), 0);
  ncclWindow_t window = nullptr;
  EXPECT_EQ(nccl().ncclCommWindowRegister(ranks()[0].communicator, ToPointer(memory.address() + 100), 4096, &window,
                                          NCCL_WIN_COLL_SYMMETRIC),
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
