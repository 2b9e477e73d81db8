// Stream-ordered allocation and its pools: when memory is reused, when it is given back, which calls are refused.
#include <array>
#include <limits>
#include <thread>
#include <utility>

#include "src/library/base/bytes.h"
#include "src/library/driver/device_info.h"
#include "tests/driver/conformance/conformance_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kStep = 32 * kMiB;
constexpr cuuint64_t kUnlimited = std::numeric_limits<cuuint64_t>::max();
constexpr CUmemPool_attribute kPolicies[] = {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
                                             CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
                                             CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES};

// Each test has a pool of its own, empty, with the default attributes.
class AsyncMemory : public ConformanceTest {
 protected:
  void SetUp() override {
    const int supported = Get(cuda().cuDeviceGetAttribute, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0);
    if (supported == 0) GTEST_SKIP() << "needs stream-ordered memory";
    pool_ = MakePool();
  }
  void TearDown() override {
    if (pool_ != nullptr) Destroy(pool_);
  }

  static CUmemPoolProps Properties() {
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = DeviceLocation(0);
    return properties;
  }
  CUmemoryPool MakePool(size_t most = 0) {
    CUmemPoolProps properties = Properties();
    properties.maxSize = most;
    return Get(cuda().cuMemPoolCreate, &properties);
  }
  void Destroy(CUmemoryPool pool) { EXPECT_EQ(cuda().cuMemPoolDestroy(pool), CUDA_SUCCESS); }
  CUdeviceptr AllocateOn(CUstream stream, uint64_t bytes) {
    return Get(cuda().cuMemAllocFromPoolAsync, bytes, pool_, stream);
  }
  void FreeOn(CUstream stream, CUdeviceptr address) { EXPECT_EQ(cuda().cuMemFreeAsync(address, stream), CUDA_SUCCESS); }
  // The address that memory had which the first stream freed.
  CUdeviceptr AllocateAndFree(uint64_t bytes = kStep) {
    const CUdeviceptr address = AllocateOn(stream_, bytes);
    FreeOn(stream_, address);
    return address;
  }
  void ExpectReused(CUdeviceptr freed, CUstream stream) {
    const CUdeviceptr address = AllocateOn(stream, kStep);
    EXPECT_EQ(address, freed);
    FreeOn(stream, address);
  }
  // By the other stream, once the policy is allowed.
  void ExpectReusedUnder(CUmemPool_attribute policy, CUdeviceptr freed) {
    const CUdeviceptr fresh = AllocateOn(other_, kStep);
    EXPECT_NE(fresh, freed) << "forbidden";
    SetPolicy(policy, 1);
    ExpectReused(freed, other_);
    FreeOn(other_, fresh);
  }
  void Synchronise(CUstream stream) { EXPECT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS); }
  // Learns that a stream is done in a way that the driver does not count as a synchronisation.
  void WaitByAsking(CUstream stream) {
    while (cuda().cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
  }
  uint64_t Quantity(CUmemPool_attribute attribute) {
    cuuint64_t value = 0;
    EXPECT_EQ(cuda().cuMemPoolGetAttribute(pool_, attribute, &value), CUDA_SUCCESS);
    return value;
  }
  CUresult SetQuantity(CUmemPool_attribute attribute, cuuint64_t value) {
    return cuda().cuMemPoolSetAttribute(pool_, attribute, &value);
  }
  void Keep(cuuint64_t bytes) { EXPECT_EQ(SetQuantity(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, bytes), CUDA_SUCCESS); }
  void SetPolicy(CUmemPool_attribute policy, int allowed) {
    EXPECT_EQ(cuda().cuMemPoolSetAttribute(pool_, policy, &allowed), CUDA_SUCCESS);
  }
  void ForbidReuse() {
    for (const CUmemPool_attribute policy : kPolicies) SetPolicy(policy, 0);
  }
  CUresult SetAccess(CUmemLocation location, CUmemAccess_flags flags) {
    const CUmemAccessDesc access = {.location = location, .flags = flags};
    return cuda().cuMemPoolSetAccess(pool_, &access, 1);
  }
  uint64_t Reserved() { return Quantity(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT); }
  uint64_t Used() { return Quantity(CU_MEMPOOL_ATTR_USED_MEM_CURRENT); }

  CUmemoryPool pool_ = nullptr;
  const CUstream stream_ = MakeStream(CU_STREAM_NON_BLOCKING);
  const CUstream other_ = MakeStream(CU_STREAM_NON_BLOCKING);
};

TEST_F(AsyncMemory, IsUsedInStreamOrder) {
  const CUdeviceptr address = AllocateOn(stream_, 4096);
  Fill(address, 7, 4096, stream_);
  std::vector<uint8_t> values(4096);
  EXPECT_EQ(cuda().cuMemcpyDtoHAsync(values.data(), address, 4096, stream_), CUDA_SUCCESS);
  FreeOn(stream_, address);
  Synchronise(stream_);
  EXPECT_EQ(values, std::vector<uint8_t>(4096, 7));
}

TEST_F(AsyncMemory, ComesFromTheDevicesCurrentPool) {
  const CUmemoryPool before = Get(cuda().cuDeviceGetMemPool, 0);
  ASSERT_EQ(cuda().cuDeviceSetMemPool(0, pool_), CUDA_SUCCESS);
  const CUdeviceptr address = Get(cuda().cuMemAllocAsync, 4096, stream_);
  EXPECT_EQ(Used(), 4096u);
  EXPECT_EQ(AttributeOf<CUmemoryPool>(address, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE), pool_);
  FreeOn(stream_, address);
  EXPECT_EQ(cuda().cuDeviceSetMemPool(0, before), CUDA_SUCCESS);
}

TEST_F(AsyncMemory, ZeroBytesAreNowhereAndFreedByDoingNothing) {
  CUdeviceptr address = 1;
  EXPECT_EQ(cuda().cuMemAllocFromPoolAsync(&address, 0, pool_, stream_), CUDA_SUCCESS);
  EXPECT_EQ(address, 0u);
  EXPECT_EQ(cuda().cuMemFreeAsync(0, stream_), CUDA_SUCCESS);
}

TEST_F(AsyncMemory, IsReservedInStepsAndCountedInBytes) {
  const CUdeviceptr small = AllocateOn(stream_, 1);
  EXPECT_EQ(Reserved(), kStep);
  EXPECT_EQ(Used(), 1u);
  const CUdeviceptr large = AllocateOn(stream_, kStep);
  EXPECT_EQ(Reserved(), 2 * kStep) << "the rest of the first step serves too";
  FreeOn(stream_, small);
  FreeOn(stream_, large);
  EXPECT_EQ(Used(), 0u);
  EXPECT_EQ(Quantity(CU_MEMPOOL_ATTR_USED_MEM_HIGH), kStep + 1);
}

TEST_F(AsyncMemory, APointerTellsTheRequestedSize) {
  const CUdeviceptr address = AllocateOn(stream_, 1000);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  ASSERT_EQ(cuda().cuMemGetAddressRange(&base, &bytes, address + 10), CUDA_SUCCESS);
  EXPECT_EQ(base, address);
  EXPECT_EQ(bytes, 1000u);
  EXPECT_EQ(AttributeOf<unsigned>(address, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(AttributeOf<size_t>(address, CU_POINTER_ATTRIBUTE_RANGE_SIZE), 1000u);
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(cuda().cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address)), CUDA_ERROR_INVALID_VALUE);
  FreeOn(stream_, address);
}

TEST_F(AsyncMemory, ItsOwnStreamReusesItAtOnce) {
  ForbidReuse();
  ExpectReused(AllocateAndFree(), stream_);
}

TEST_F(AsyncMemory, AnotherStreamReusesItBehindAnEvent) {
  ForbidReuse();
  const CUdeviceptr freed = AllocateAndFree();
  Order(stream_, other_);
  ExpectReusedUnder(CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, freed);
}

TEST_F(AsyncMemory, AnotherStreamReusesItOnceTheFreeHasRun) {
  ForbidReuse();
  const CUdeviceptr freed = AllocateAndFree();
  WaitByAsking(stream_);
  ExpectReusedUnder(CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, freed);
}

TEST_F(AsyncMemory, AnotherStreamReusesMemoryAfterAHostWaitUnderAnyPolicy) {
  ForbidReuse();
  Keep(kUnlimited);
  const CUdeviceptr freed = AllocateAndFree();
  Synchronise(stream_);
  ExpectReused(freed, other_);
}

TEST_F(AsyncMemory, AFullPoolReusesBehindADependencyOfItsOwn) {
  Destroy(pool_);
  pool_ = MakePool(kStep);

  ForbidReuse();
  SetPolicy(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 1);
  const CUdeviceptr first = AllocateOn(stream_, kStep);
  for (int round = 0; round < 40; ++round) Fill(first, 1, kStep, stream_);
  FreeOn(stream_, first);
  const CUdeviceptr second = AllocateOn(other_, kStep);
  EXPECT_EQ(second, first);
  Fill(second, 2, kStep, other_);
  Synchronise(other_);
  EXPECT_EQ(Read(second, 16), std::vector<uint8_t>(16, 2)) << "behind what the first stream wrote";
  FreeOn(other_, second);
}

TEST_F(AsyncMemory, ASynchronisationGivesBackWhatExceedsTheThreshold) {
  for (const auto& [threshold, left] :
       {std::pair<uint64_t, uint64_t>{0, 0}, {50 * kMiB, kStep}, {kUnlimited, 4 * kStep}}) {
    Keep(threshold);
    AllocateAndFree(4 * kStep);
    EXPECT_EQ(Reserved(), 4 * kStep);
    Synchronise(stream_);
    EXPECT_EQ(Reserved(), left);
  }
}

TEST_F(AsyncMemory, WaitingForAnEventOrTheContextGivesBackToo) {
  const CUevent event = MakeEvent();
  AllocateAndFree();
  ASSERT_EQ(cuda().cuEventRecord(event, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(Reserved(), 0u);
  AllocateAndFree();
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Reserved(), 0u);
}

TEST_F(AsyncMemory, OnlyMemoryBehindAHostWaitIsGivenBack) {
  AllocateAndFree();
  WaitByAsking(stream_);
  EXPECT_EQ(cuda().cuMemPoolTrimTo(pool_, 0), CUDA_SUCCESS);
  Synchronise(other_);
  EXPECT_EQ(Reserved(), kStep);
  Order(stream_, other_);
  Synchronise(other_);
  EXPECT_EQ(Reserved(), 0u);
}

TEST_F(AsyncMemory, IsTrimmedToNoLessThanAsked) {
  Keep(kUnlimited);
  AllocateAndFree(3 * kStep);
  Synchronise(stream_);
  EXPECT_EQ(cuda().cuMemPoolTrimTo(pool_, 40 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(Reserved(), 2 * kStep);
  EXPECT_EQ(cuda().cuMemPoolTrimTo(pool_, 0), CUDA_SUCCESS);
  EXPECT_EQ(Reserved(), 0u);
}

TEST_F(AsyncMemory, MemoryInUseIsNotTrimmed) {
  const CUdeviceptr address = AllocateOn(stream_, kStep);
  Synchronise(stream_);
  EXPECT_EQ(cuda().cuMemPoolTrimTo(pool_, 0), CUDA_SUCCESS);
  EXPECT_EQ(Reserved(), kStep);
  FreeOn(stream_, address);
}

TEST_F(AsyncMemory, IsFreedByCuMemFreeAtOnce) {
  const CUdeviceptr address = AllocateOn(stream_, kStep);
  Fill(address, 1, kStep, stream_);
  Synchronise(stream_);
  EXPECT_EQ(cuda().cuMemFree(address), CUDA_SUCCESS);
  EXPECT_EQ(Reserved(), 0u);
  EXPECT_EQ(cuda().cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(AsyncMemory, MemoryOfCuMemAllocIsFreedInStreamOrderToo) {
  const CUdeviceptr address = Get(cuda().cuMemAlloc, kMiB);
  EXPECT_EQ(cuda().cuMemFreeAsync(address, stream_), CUDA_SUCCESS);
  Synchronise(stream_);
  EXPECT_EQ(cuda().cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(AsyncMemory, IsFreedOnceAndWhereItBegins) {
  const CUdeviceptr address = AllocateOn(stream_, 4096);
  EXPECT_EQ(cuda().cuMemFreeAsync(address + 512, stream_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuMemFreeAsync(address, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemFreeAsync(address, stream_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuMemFreeAsync(4096, stream_), CUDA_ERROR_INVALID_VALUE) << "foreign";
}

TEST_F(AsyncMemory, MoreThanTheDeviceHasIsOutOfMemory) {
  CUdeviceptr address = 0;
  for (const uint64_t bytes : {DescribeDevice(driver(), 0).value().total_bytes + kStep, uint64_t{1} << 60}) {
    EXPECT_EQ(cuda().cuMemAllocFromPoolAsync(&address, bytes, pool_, stream_), CUDA_ERROR_OUT_OF_MEMORY);
  }
  EXPECT_EQ(Reserved(), 0u);
}

TEST_F(AsyncMemory, AFullDeviceTakesBackWhatOtherPoolsKeep) {
  Keep(kUnlimited);
  const uint64_t most = RoundDown(FreeBytes(), kStep) * 3 / 4;
  AllocateAndFree(most);
  Synchronise(stream_);
  EXPECT_EQ(Reserved(), RoundUp(most, kStep));
  CUmemoryPool const second = MakePool();
  FreeOn(stream_, Get(cuda().cuMemAllocFromPoolAsync, most, second, stream_));
  Synchronise(stream_);
  Destroy(second);
}

TEST_F(AsyncMemory, APoolGrowsToItsLimitInSteps) {
  CUmemoryPool const limited = MakePool(40 * kMiB);
  std::array<CUdeviceptr, 3> addresses = {};
  const auto allocate = [&](size_t index) {
    return cuda().cuMemAllocFromPoolAsync(&addresses[index], 30 * kMiB, limited, stream_);
  };
  EXPECT_EQ(allocate(0), CUDA_SUCCESS);
  EXPECT_EQ(allocate(1), CUDA_SUCCESS) << "the limit is rounded up to steps";
  EXPECT_EQ(allocate(2), CUDA_ERROR_OUT_OF_MEMORY);
  FreeOn(stream_, addresses[0]);
  FreeOn(stream_, addresses[1]);
  Destroy(limited);
}

TEST_F(AsyncMemory, ADestroyedPoolLivesUntilItsLastAllocationIsFreed) {
  const CUdeviceptr address = AllocateOn(stream_, 4096);
  Destroy(std::exchange(pool_, nullptr));
  Fill(address, 3, 4096, stream_);
  Synchronise(stream_);
  EXPECT_EQ(Read(address, 16), std::vector<uint8_t>(16, 3));
  FreeOn(stream_, address);
}

TEST_F(AsyncMemory, DestroyingTheCurrentPoolMakesTheDefaultCurrent) {
  const CUmemoryPool standard = Get(cuda().cuDeviceGetDefaultMemPool, 0);
  ASSERT_EQ(cuda().cuDeviceSetMemPool(0, pool_), CUDA_SUCCESS);
  Destroy(std::exchange(pool_, nullptr));
  EXPECT_EQ(Get(cuda().cuDeviceGetMemPool, 0), standard);
  EXPECT_EQ(cuda().cuMemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(AsyncMemory, APoolThatCannotBeIsRefused) {
  CUmemoryPool pool = nullptr;
  const CUmemPoolProps right = Properties();
  EXPECT_EQ(cuda().cuMemPoolCreate(nullptr, &right), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuMemPoolCreate(&pool, nullptr), CUDA_ERROR_INVALID_VALUE);
  CUmemPoolProps wrong[] = {right, right, right};
  wrong[0].location = DeviceLocation(999);
  wrong[1].allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
  wrong[2].handleTypes = static_cast<CUmemAllocationHandleType>(77);
  for (const CUmemPoolProps& each : wrong) {
    EXPECT_EQ(cuda().cuMemPoolCreate(&pool, &each), CUDA_ERROR_INVALID_VALUE) << "number " << &each - wrong;
  }
  EXPECT_EQ(cuda().cuMemPoolDestroy(nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(AsyncMemory, AttributesAreReadAndSetAsDocumented) {
  int policy = 0;
  for (const CUmemPool_attribute attribute : kPolicies) {
    ASSERT_EQ(cuda().cuMemPoolGetAttribute(pool_, attribute, &policy), CUDA_SUCCESS);
    EXPECT_EQ(policy, 1);
  }
  EXPECT_EQ(Quantity(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0u);
  for (const CUmemPool_attribute high : {CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, CU_MEMPOOL_ATTR_USED_MEM_HIGH}) {
    EXPECT_EQ(SetQuantity(high, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(SetQuantity(high, 0), CUDA_SUCCESS);
  }
  for (const CUmemPool_attribute current : {CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_CURRENT}) {
    EXPECT_EQ(SetQuantity(current, 0), CUDA_ERROR_INVALID_VALUE);
  }
  const auto unknown = static_cast<CUmemPool_attribute>(15);
  cuuint64_t value = 0;
  EXPECT_EQ(SetQuantity(unknown, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuMemPoolGetAttribute(pool_, unknown, &value), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(AsyncMemory, AHighMarkIsResetToWhatIsThere) {
  AllocateAndFree();
  Synchronise(stream_);
  EXPECT_EQ(Quantity(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), kStep);
  EXPECT_EQ(SetQuantity(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0), CUDA_SUCCESS);
  EXPECT_EQ(Quantity(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 0u);
}

TEST_F(AsyncMemory, TheOwnersAccessIsNotTakenAway) {
  EXPECT_EQ(SetAccess(DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_SUCCESS);
  EXPECT_EQ(SetAccess(DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_NONE), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(SetAccess(DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(SetAccess(DeviceLocation(999), CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(SetAccess(NumaLocation(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuda().cuMemPoolSetAccess(pool_, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  CUmemLocation location = DeviceLocation(0);
  CUmemAccess_flags flags = Get(cuda().cuMemPoolGetAccess, pool_, &location);
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  location = DeviceLocation(999);
  EXPECT_EQ(cuda().cuMemPoolGetAccess(&flags, pool_, &location), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(AsyncMemory, APeerUsesItOnceGranted) {
  COMMPOOL_REQUIRE_DEVICES(2);
  ASSERT_EQ(SetAccess(DeviceLocation(1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_SUCCESS);
  const CUdeviceptr address = AllocateOn(stream_, 4096);
  Synchronise(stream_);
  PrimaryContext peer = PrimaryContext::Retain(driver(), 1).value();
  {
    ContextGuard current(driver(), peer);
    FillAndWait(address, 9, 4096);
  }
  EXPECT_EQ(Read(address, 16), std::vector<uint8_t>(16, 9));
  FreeOn(stream_, address);
}

}  // namespace
}  // namespace commpool::internal::testing
