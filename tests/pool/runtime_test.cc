// The runtime: default pools, routing, and refusals.
#include "src/library/pool/runtime.h"

#include <memory>
#include <thread>

#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class RuntimeFacts : public PoolTest {
 protected:
  std::string OwnerOf(CUdeviceptr address) { return runtime().addresses().OwnerOf(address).value()->name(); }
};

TEST_F(RuntimeFacts, ADeviceHasOneDefaultPool) {
  const PoolHandle pool = runtime().DefaultPool(0).value();
  EXPECT_EQ(runtime().DefaultPool(0).value(), pool);
  EXPECT_EQ(Get(pool).name(), "default");
  EXPECT_EQ(Get(pool).device(), 0);
}

TEST_F(RuntimeFacts, EachDeviceHasItsOwnDefaultPool) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const PoolHandle far = runtime().DefaultPool(1).value();
  EXPECT_NE(far, runtime().DefaultPool(0).value());
  EXPECT_EQ(Get(far).device(), 1);
}

CUresult AttributeWithoutVirtualMemory(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (attribute != CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) {
    return SharedDriver()->cuda.cuDeviceGetAttribute(value, attribute, device);
  }
  *value = 0;
  return CUDA_SUCCESS;
}

TEST_F(RuntimeFacts, TheDefaultPoolOfADeviceWithoutVirtualMemoryUsesTheCudaBacking) {
  auto old = std::make_shared<Driver>(driver());
  old->cuda.cuDeviceGetAttribute = AttributeWithoutVirtualMemory;
  Runtime on_old(old);
  const std::shared_ptr<Pool> pool = on_old.pools().Find(on_old.DefaultPool(0).value()).value();
  EXPECT_EQ(pool->basis().configuration.backing.kind, BackingKind::kCuda);
  EXPECT_EQ(Get(runtime().DefaultPool(0).value()).basis().configuration.backing.kind, BackingKind::kVmm);
}

TEST_F(RuntimeFacts, DefaultPoolsAreNotDestroyed) {
  const PoolHandle pool = runtime().DefaultPool(0).value();
  ExpectFailure(runtime().DestroyPool(pool), StatusCode::kInvalidArgument, "default pool of device 0");
  EXPECT_TRUE(runtime().pools().Find(pool).ok());
}

TEST_F(RuntimeFacts, ThreadsThatRaceForADefaultPoolGetOne) {
  std::vector<PoolHandle> found(4);
  std::vector<std::thread> threads;
  for (PoolHandle& handle : found) threads.emplace_back([&] { handle = runtime().DefaultPool(0).value(); });
  for (std::thread& thread : threads) thread.join();
  for (const PoolHandle handle : found) EXPECT_EQ(handle, found[0]);
  EXPECT_EQ(runtime().pools().All().size(), 1u);
}

TEST_F(RuntimeFacts, UnknownDevicesAreRefusedWithTheirNumber) {
  const int none = DeviceCountOfTests();
  const std::string count = std::to_string(none);
  ExpectFailure(runtime().DefaultPool(none).status(), StatusCode::kInvalidArgument, count);
  ExpectFailure(runtime().DefaultPool(-1).status(), StatusCode::kInvalidArgument, "-1");
  ExpectFailure(runtime().DefaultPool(64).status(), StatusCode::kInvalidArgument, "64");
  ExpectFailure(runtime().Allocate(none, 1, nullptr).status(), StatusCode::kInvalidArgument, count);
  ExpectFailure(runtime().CreatePool(Configured("none", none)).status(), StatusCode::kInvalidArgument, count);
  EXPECT_TRUE(runtime().pools().All().empty());
}

TEST_F(RuntimeFacts, CachesServeNoDeviceBeyondTheTableOfDefaultPools) {
  for (const int device : {-2, 64, 1000}) {
    ExpectFailure(runtime().Allocate(device, 512, nullptr).status(), StatusCode::kInvalidArgument,
                  std::to_string(device));
    EXPECT_EQ(runtime().AllocateAtOnce(Target::Device(device), 512, nullptr), 0u) << device;
  }
}

TEST_F(RuntimeFacts, AnAlignmentAboveTheGranularityIsRefused) {
  PoolConfiguration configuration = Configured("aligned");
  configuration.alignment_bytes = 1 * kGiB;
  ExpectFailure(runtime().CreatePool(configuration).status(), StatusCode::kInvalidArgument, "alignment_bytes 1 GiB");
}

TEST_F(RuntimeFacts, MorePeersThanDevicesAreRefused) {
  PoolConfiguration configuration = Configured("peers");
  configuration.peers.assign(static_cast<size_t>(DeviceCountOfTests()), 0);
  EXPECT_TRUE(runtime().CreatePool(configuration).ok());
  configuration.peers.push_back(0);
  ExpectFailure(runtime().CreatePool(configuration).status(), StatusCode::kInvalidArgument,
                std::to_string(DeviceCountOfTests() + 1) + " peers are named");
}

TEST_F(RuntimeFacts, AlignsBlocksUpToTheGranularity) {
  PoolConfiguration configuration = Configured("aligned");
  configuration.alignment_bytes = 2 * kMiB;
  const PoolHandle pool = runtime().CreatePool(configuration).value();
  const CUdeviceptr block = runtime().AllocateFrom(pool, 512, nullptr).value();
  EXPECT_EQ(block % (2 * kMiB), 0u);
  EXPECT_TRUE(runtime().Free(block).ok());
}

TEST_F(RuntimeFacts, AllocationsGoToTheInnermostScopeElseToTheDefaultPool) {
  const CUdeviceptr outside = runtime().Allocate(0, 1000, nullptr).value();
  const PoolHandle pool = Create(Configured("scoped"));
  const ScopeHandle scope = runtime().scopes().Begin({runtime().pools().Find(pool).value()}).value();
  const CUdeviceptr inside = runtime().Allocate(-1, 1000, nullptr).value();
  EXPECT_EQ(OwnerOf(outside), "default");
  EXPECT_EQ(OwnerOf(inside), "scoped");
  ASSERT_TRUE(runtime().scopes().End(scope).ok());
  EXPECT_TRUE(runtime().Free(inside).ok());
  EXPECT_TRUE(runtime().Free(outside).ok());
}

TEST_F(RuntimeFacts, AScopeLetsOtherDevicesThrough) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const PoolHandle pool = Create(Configured("scoped"));
  const ScopeHandle scope = runtime().scopes().Begin({runtime().pools().Find(pool).value()}).value();
  const CUdeviceptr far = runtime().Allocate(1, 1000, nullptr).value();
  EXPECT_EQ(OwnerOf(far), "default");
  ASSERT_TRUE(runtime().scopes().End(scope).ok());
  EXPECT_TRUE(runtime().Free(far).ok());
}

TEST_F(RuntimeFacts, AStreamNamesItsDevice) {
  COMMPOOL_REQUIRE_DEVICES(2);
  PrimaryContext far = PrimaryContext::Retain(driver(), 1).value();
  std::unique_ptr<TestStream> stream;
  {
    ContextGuard guard(driver(), far);
    stream = std::make_unique<TestStream>();
  }
  const CUdeviceptr address = runtime().Allocate(-1, 1000, stream->get()).value();
  EXPECT_EQ(std::static_pointer_cast<Pool>(runtime().addresses().OwnerOf(address).value())->device(), 1);
  EXPECT_TRUE(runtime().Free(address).ok());
  EXPECT_TRUE(runtime().ReleaseStream(stream->get()).ok());
}

TEST_F(RuntimeFacts, AScopeOfADestroyedPoolSaysSo) {
  const PoolHandle pool = Create(Configured("gone"));
  const ScopeHandle scope = runtime().scopes().Begin({runtime().pools().Find(pool).value()}).value();
  ASSERT_TRUE(runtime().DestroyPool(pool).ok());
  ExpectFailure(runtime().Allocate(0, 1, nullptr).status(), StatusCode::kFailedPrecondition, "pool gone");
  EXPECT_TRUE(runtime().scopes().End(scope).ok());
}

TEST_F(RuntimeFacts, ADefaultStreamWithoutAContextNamesNoDevice) {
  Status status;
  std::thread([&] { status = runtime().Allocate(-1, 1, nullptr).status(); }).join();
  ExpectFailure(status, StatusCode::kFailedPrecondition, "no CUDA context is current");
}

TEST_F(RuntimeFacts, ADeviceOrAStreamNeedsNoContext) {
  const TestStream stream;
  Status named;
  Status found;
  std::thread([&] {
    Result<CUdeviceptr> address = runtime().Allocate(0, 1000, stream.get());
    named = address.ok() ? runtime().Free(*address) : address.status();
    address = runtime().Allocate(-1, 1000, stream.get());
    found = address.ok() ? runtime().Free(*address) : address.status();
  }).join();
  EXPECT_TRUE(named.ok()) << named.message();
  EXPECT_TRUE(found.ok()) << found.message();
}

TEST_F(RuntimeFacts, PointersThatAreNoBlocksAreNotFound) {
  const CUdeviceptr address = runtime().Allocate(0, 4096, nullptr).value();
  ExpectFailure(runtime().Free(0), StatusCode::kNotFound, "0x0");
  ExpectFailure(runtime().Free(0x1234), StatusCode::kNotFound, "0x1234");
  ExpectFailure(runtime().Free(address + 512), StatusCode::kNotFound, "inside a live block");
  ExpectFailure(runtime().RecordStream(address + 512, nullptr), StatusCode::kNotFound, "inside a live block");
  ExpectFailure(runtime().RecordStream(0x1234, nullptr), StatusCode::kNotFound, "0x1234");
  EXPECT_TRUE(runtime().Free(address).ok());
  ExpectFailure(runtime().Free(address), StatusCode::kNotFound, "freed already");
  ExpectFailure(runtime().RecordStream(address, nullptr), StatusCode::kNotFound, "freed already");
}

TEST_F(RuntimeFacts, StaleHandlesAreErrors) {
  const PoolHandle pool = Create(Configured("short"));
  ASSERT_TRUE(runtime().DestroyPool(pool).ok());
  EXPECT_EQ(runtime().AllocateFrom(pool, 1, nullptr).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(runtime().DestroyPool(pool).code(), StatusCode::kNotFound);
  EXPECT_EQ(runtime().AllocateFrom(0, 1, nullptr).status().code(), StatusCode::kNotFound);
}

TEST_F(RuntimeFacts, AReleasedStreamsHandleMayMeanAnotherStream) {
  const PoolHandle pool = Create(Configured("recycled"));
  auto stream = std::make_unique<TestStream>();
  const CUdeviceptr freed = runtime().AllocateFrom(pool, kMiB, stream->get()).value();
  const CUdeviceptr live = runtime().AllocateFrom(pool, kMiB, stream->get()).value();
  ASSERT_TRUE(runtime().Free(freed).ok());
  ASSERT_TRUE(runtime().ReleaseStream(stream->get()).ok());
  stream.reset();
  // Nobody waits for the released stream: every stream may take its free memory, and the live block once freed.
  const TestStream other;
  const CUdeviceptr first = runtime().AllocateFrom(pool, kMiB, other.get()).value();
  EXPECT_EQ(first, freed);
  ASSERT_TRUE(runtime().Free(live).ok());
  const CUdeviceptr second = runtime().AllocateFrom(pool, kMiB, other.get()).value();
  EXPECT_EQ(second, live);
  EXPECT_TRUE(runtime().Free(first).ok());
  EXPECT_TRUE(runtime().Free(second).ok());
}

TEST_F(RuntimeFacts, DefaultStreamsAreNotReleased) {
  for (const CUstream stream : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    ExpectFailure(runtime().ReleaseStream(stream), StatusCode::kInvalidArgument, "default stream");
  }
}

}  // namespace
}  // namespace commpool::internal::testing
