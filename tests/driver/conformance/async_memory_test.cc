// Stream-ordered allocation and its pools: when memory is reused, when it is given back, which calls are refused.
#include <cuda.h>

#include <array>
#include <limits>
#include <thread>

#include "src/library/base/bytes.h"
#include "tests/driver/conformance/conformance_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kStep = 32 * kMiB;
constexpr cuuint64_t kUnlimited = std::numeric_limits<cuuint64_t>::max();

// Each test has a pool of its own, empty, with the default attributes.
class AsyncMemory : public ConformanceTest {
 protected:
  void SetUp() override {
    int supported = 0;
    ASSERT_EQ(cuda().cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0), CUDA_SUCCESS);
    if (supported == 0) GTEST_SKIP() << "needs stream-ordered memory";
    pool_ = MakePool();
    stream_ = MakeStream(CU_STREAM_NON_BLOCKING);
    other_ = MakeStream(CU_STREAM_NON_BLOCKING);
  }
  void TearDown() override {
    if (pool_ == nullptr) return;
    EXPECT_EQ(cuda().cuMemPoolDestroy(pool_), CUDA_SUCCESS);
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
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(cuda().cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
    return pool;
  }
  CUdeviceptr AllocateOn(CUstream stream, uint64_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuda().cuMemAllocFromPoolAsync(&address, bytes, pool_, stream), CUDA_SUCCESS);
    return address;
  }
  void FreeOn(CUstream stream, CUdeviceptr address) { EXPECT_EQ(cuda().cuMemFreeAsync(address, stream), CUDA_SUCCESS); }
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
  void Forbid(CUmemPool_attribute policy) {
    int no = 0;
    EXPECT_EQ(cuda().cuMemPoolSetAttribute(pool_, policy, &no), CUDA_SUCCESS);
  }
  void ForbidReuse() {
    Forbid(CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES);
    Forbid(CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC);
    Forbid(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES);
  }
  void Allow(CUmemPool_attribute policy) {
    int yes = 1;
    EXPECT_EQ(cuda().cuMemPoolSetAttribute(pool_, policy, &yes), CUDA_SUCCESS);
  }
  uint64_t Reserved() { return Quantity(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT); }
  uint64_t Used() { return Quantity(CU_MEMPOOL_ATTR_USED_MEM_CURRENT); }

  CUmemoryPool pool_ = nullptr;
  CUstream stream_ = nullptr;
  CUstream other_ = nullptr;
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
  CUmemoryPool before = nullptr;
  CUmemoryPool now = nullptr;
  ASSERT_EQ(cuda().cuDeviceGetMemPool(&before, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuDeviceSetMemPool(0, pool_), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuda().cuMemAllocAsync(&address, 4096, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Used(), 4096u);
  ASSERT_EQ(cuda().cuPointerGetAttribute(&now, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address), CUDA_SUCCESS);
  EXPECT_EQ(now, pool_);
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
  unsigned type = 0;
  ASSERT_EQ(cuda().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address), CUDA_SUCCESS);
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
  ASSERT_EQ(cuda().cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 1000u);
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(cuda().cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address)), CUDA_ERROR_INVALID_VALUE);
  FreeOn(stream_, address);
}

TEST_F(AsyncMemory, ItsOwnStreamReusesItAtOnce) {
  ForbidReuse();
  const CUdeviceptr first = AllocateOn(stream_, kStep);
  FreeOn(stream_, first);
  const CUdeviceptr second = AllocateOn(stream_, kStep);
  EXPECT_EQ(second, first);
  FreeOn(stream_, second);
}

TEST_F(AsyncMemory, AnotherStreamReusesItBehindAnEvent) {
  ForbidReuse();
  const CUdeviceptr first = AllocateOn(stream_, kStep);
  FreeOn(stream_, first);
  const CUevent freed = MakeEvent();
  ASSERT_EQ(cuda().cuEventRecord(freed, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamWaitEvent(other_, freed, 0), CUDA_SUCCESS);
  const CUdeviceptr fresh = AllocateOn(other_, kStep);
  EXPECT_NE(fresh, first) << "forbidden";
  Allow(CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES);
  const CUdeviceptr reused = AllocateOn(other_, kStep);
  EXPECT_EQ(reused, first);
  FreeOn(other_, fresh);
  FreeOn(other_, reused);
}

TEST_F(AsyncMemory, AnotherStreamReusesItOnceTheFreeHasRun) {
  ForbidReuse();
  const CUdeviceptr first = AllocateOn(stream_, kStep);
  FreeOn(stream_, first);
  WaitByAsking(stream_);
  const CUdeviceptr fresh = AllocateOn(other_, kStep);
  EXPECT_NE(fresh, first) << "forbidden";
  Allow(CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC);
  const CUdeviceptr reused = AllocateOn(other_, kStep);
  EXPECT_EQ(reused, first);
  FreeOn(other_, fresh);
  FreeOn(other_, reused);
}

TEST_F(AsyncMemory, AnotherStreamReusesMemoryAfterAHostWaitUnderAnyPolicy) {
  ForbidReuse();
  Keep(kUnlimited);
  const CUdeviceptr first = AllocateOn(stream_, kStep);
  FreeOn(stream_, first);
  Synchronise(stream_);
  const CUdeviceptr second = AllocateOn(other_, kStep);
  EXPECT_EQ(second, first);
  FreeOn(other_, second);
}

TEST_F(AsyncMemory, AFullPoolReusesBehindADependencyOfItsOwn) {
  EXPECT_EQ(cuda().cuMemPoolDestroy(pool_), CUDA_SUCCESS);
  pool_ = MakePool(kStep);

  ForbidReuse();
  Allow(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES);
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
    FreeOn(stream_, AllocateOn(stream_, 4 * kStep));
    EXPECT_EQ(Reserved(), 4 * kStep);
    Synchronise(stream_);
    EXPECT_EQ(Reserved(), left);
  }
}

TEST_F(AsyncMemory, WaitingForAnEventOrTheContextGivesBackToo) {
  const CUevent event = MakeEvent();
  FreeOn(stream_, AllocateOn(stream_, kStep));
  ASSERT_EQ(cuda().cuEventRecord(event, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(Reserved(), 0u);
  FreeOn(stream_, AllocateOn(stream_, kStep));
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Reserved(), 0u);
}

TEST_F(AsyncMemory, OnlyMemoryBehindAHostWaitIsGivenBack) {
  FreeOn(stream_, AllocateOn(stream_, kStep));
  WaitByAsking(stream_);
  EXPECT_EQ(cuda().cuMemPoolTrimTo(pool_, 0), CUDA_SUCCESS);
  Synchronise(other_);
  EXPECT_EQ(Reserved(), kStep);
  const CUevent freed = MakeEvent();
  ASSERT_EQ(cuda().cuEventRecord(freed, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamWaitEvent(other_, freed, 0), CUDA_SUCCESS);
  Synchronise(other_);
  EXPECT_EQ(Reserved(), 0u);
}

TEST_F(AsyncMemory, IsTrimmedToNoLessThanAsked) {
  Keep(kUnlimited);
  FreeOn(stream_, AllocateOn(stream_, 3 * kStep));
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
  CUdeviceptr address = 0;
  ASSERT_EQ(cuda().cuMemAlloc(&address, kMiB), CUDA_SUCCESS);
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
  size_t total = 0;
  ASSERT_EQ(cuda().cuDeviceTotalMem(&total, 0), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  for (const uint64_t bytes : {static_cast<uint64_t>(total) + kStep, uint64_t{1} << 60}) {
    EXPECT_EQ(cuda().cuMemAllocFromPoolAsync(&address, bytes, pool_, stream_), CUDA_ERROR_OUT_OF_MEMORY);
  }
  EXPECT_EQ(Reserved(), 0u);
}

TEST_F(AsyncMemory, AFullDeviceTakesBackWhatOtherPoolsKeep) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  Keep(kUnlimited);
  ASSERT_EQ(cuda().cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
  const uint64_t most = RoundDown(free_bytes, kStep) * 3 / 4;
  FreeOn(stream_, AllocateOn(stream_, most));
  Synchronise(stream_);
  EXPECT_EQ(Reserved(), RoundUp(most, kStep));
  CUdeviceptr address = 0;
  CUmemoryPool const second = MakePool();
  EXPECT_EQ(cuda().cuMemAllocFromPoolAsync(&address, most, second, stream_), CUDA_SUCCESS);
  FreeOn(stream_, address);
  Synchronise(stream_);
  EXPECT_EQ(cuda().cuMemPoolDestroy(second), CUDA_SUCCESS);
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
  EXPECT_EQ(cuda().cuMemPoolDestroy(limited), CUDA_SUCCESS);
}

TEST_F(AsyncMemory, ADestroyedPoolLivesUntilItsLastAllocationIsFreed) {
  const CUdeviceptr address = AllocateOn(stream_, 4096);
  EXPECT_EQ(cuda().cuMemPoolDestroy(pool_), CUDA_SUCCESS);
  Fill(address, 3, 4096, stream_);
  Synchronise(stream_);
  EXPECT_EQ(Read(address, 16), std::vector<uint8_t>(16, 3));
  FreeOn(stream_, address);
  pool_ = nullptr;
}

TEST_F(AsyncMemory, DestroyingTheCurrentPoolMakesTheDefaultCurrent) {
  CUmemoryPool standard = nullptr;
  CUmemoryPool current = nullptr;
  ASSERT_EQ(cuda().cuDeviceGetDefaultMemPool(&standard, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuDeviceSetMemPool(0, pool_), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemPoolDestroy(pool_), CUDA_SUCCESS);
  pool_ = nullptr;
  ASSERT_EQ(cuda().cuDeviceGetMemPool(&current, 0), CUDA_SUCCESS);
  EXPECT_EQ(current, standard);
  EXPECT_EQ(cuda().cuMemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(AsyncMemory, APoolThatCannotBeIsRefused) {
  CUmemoryPool pool = nullptr;
  CUmemPoolProps properties = Properties();
  EXPECT_EQ(cuda().cuMemPoolCreate(nullptr, &properties), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuMemPoolCreate(&pool, nullptr), CUDA_ERROR_INVALID_VALUE);
  properties.location = DeviceLocation(999);
  EXPECT_EQ(cuda().cuMemPoolCreate(&pool, &properties), CUDA_ERROR_INVALID_VALUE);
  properties = Properties();
  properties.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
  EXPECT_EQ(cuda().cuMemPoolCreate(&pool, &properties), CUDA_ERROR_INVALID_VALUE);
  properties = Properties();
  properties.handleTypes = static_cast<CUmemAllocationHandleType>(77);
  EXPECT_EQ(cuda().cuMemPoolCreate(&pool, &properties), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuMemPoolDestroy(nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(AsyncMemory, AttributesAreReadAndSetAsDocumented) {
  int policy = 0;
  for (const CUmemPool_attribute attribute :
       {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES}) {
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
  FreeOn(stream_, AllocateOn(stream_, kStep));
  Synchronise(stream_);
  EXPECT_EQ(Quantity(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), kStep);
  EXPECT_EQ(SetQuantity(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0), CUDA_SUCCESS);
  EXPECT_EQ(Quantity(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 0u);
}

TEST_F(AsyncMemory, TheOwnersAccessIsNotTakenAway) {
  const auto set = [&](CUmemLocation location, CUmemAccess_flags flags) {
    const CUmemAccessDesc access = {.location = location, .flags = flags};
    return cuda().cuMemPoolSetAccess(pool_, &access, 1);
  };
  EXPECT_EQ(set(DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_SUCCESS);
  EXPECT_EQ(set(DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_NONE), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(set(DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(set(DeviceLocation(999), CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(set(NumaLocation(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuda().cuMemPoolSetAccess(pool_, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  CUmemLocation location = DeviceLocation(0);
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  ASSERT_EQ(cuda().cuMemPoolGetAccess(&flags, pool_, &location), CUDA_SUCCESS);
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  location = DeviceLocation(999);
  EXPECT_EQ(cuda().cuMemPoolGetAccess(&flags, pool_, &location), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(AsyncMemory, APeerUsesItOnceGranted) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const CUmemAccessDesc access = {.location = DeviceLocation(1), .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASSERT_EQ(cuda().cuMemPoolSetAccess(pool_, &access, 1), CUDA_SUCCESS);
  const CUdeviceptr address = AllocateOn(stream_, 4096);
  Synchronise(stream_);
  PrimaryContext peer = PrimaryContext::Retain(driver(), 1).value();
  {
    ContextGuard current(driver(), peer);
    Fill(address, 9, 4096);
    EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  }
  EXPECT_EQ(Read(address, 16), std::vector<uint8_t>(16, 9));
  FreeOn(stream_, address);
}

}  // namespace
}  // namespace commpool::internal::testing
