// The runtime: default pools, routing, and refusals.
#include "src/library/pool/runtime.h"

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class RuntimeFacts : public PoolTest {
 protected:
  std::string OwnerOf(CUdeviceptr address) { return runtime().addresses().OwnerOf(address).value()->name(); }
  ScopeHandle BeginScope(PoolHandle pool) {
    return runtime().scopes().Begin({runtime().pools().Find(pool).value()}).value();
  }
  static void ExpectInvalid(const Status& status, const std::string& named, const char* file = __builtin_FILE(),
                            int line = __builtin_LINE()) {
    ExpectFailure(status, StatusCode::kInvalidArgument, named, file, line);
  }
  static void ExpectNotFound(const Status& status, const std::string& why, const char* file = __builtin_FILE(),
                             int line = __builtin_LINE()) {
    ExpectFailure(status, StatusCode::kNotFound, why, file, line);
  }
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
  ExpectInvalid(runtime().DestroyPool(pool), "default pool of device 0");
  EXPECT_TRUE(runtime().pools().Find(pool).ok());
}

TEST_F(RuntimeFacts, ThreadsThatRaceForADefaultPoolGetOne) {
  std::vector<PoolHandle> found(4);
  OnThreads(4, [&](int thread) { found[static_cast<size_t>(thread)] = runtime().DefaultPool(0).value(); });
  for (const PoolHandle handle : found) EXPECT_EQ(handle, found[0]);
  EXPECT_EQ(runtime().pools().All().size(), 1u);
}

TEST_F(RuntimeFacts, UnknownDevicesAreRefusedWithTheirNumber) {
  const int none = DeviceCountOfTests();
  const std::string count = std::to_string(none);
  ExpectInvalid(runtime().DefaultPool(none).status(), count);
  ExpectInvalid(runtime().DefaultPool(-1).status(), "-1");
  ExpectInvalid(runtime().DefaultPool(64).status(), "64");
  ExpectInvalid(runtime().Allocate(none, 1, nullptr).status(), count);
  ExpectInvalid(runtime().CreatePool(Configured("none", none)).status(), count);
  EXPECT_TRUE(runtime().pools().All().empty());
}

TEST_F(RuntimeFacts, CachesServeNoDeviceBeyondTheTableOfDefaultPools) {
  for (const int device : {-2, 64, 1000}) {
    ExpectInvalid(runtime().Allocate(device, 512, nullptr).status(), std::to_string(device));
    EXPECT_EQ(runtime().AllocateAtOnce(Target::Device(device), 512, nullptr), 0u) << device;
  }
}

TEST_F(RuntimeFacts, AnAlignmentAboveTheGranularityIsRefused) {
  PoolConfiguration configuration = Configured("aligned");
  configuration.alignment_bytes = 1 * kGiB;
  ExpectInvalid(runtime().CreatePool(configuration).status(), "alignment_bytes 1 GiB");
}

TEST_F(RuntimeFacts, MorePeersThanDevicesAreRefused) {
  PoolConfiguration configuration = Configured("peers");
  configuration.peers.assign(static_cast<size_t>(DeviceCountOfTests()), 0);
  EXPECT_TRUE(runtime().CreatePool(configuration).ok());
  configuration.peers.push_back(0);
  ExpectInvalid(runtime().CreatePool(configuration).status(),
                std::to_string(DeviceCountOfTests() + 1) + " peers are named");
}

TEST_F(RuntimeFacts, AlignsBlocksUpToTheGranularity) {
  PoolConfiguration configuration = Configured("aligned");
  configuration.alignment_bytes = 2 * kMiB;
  const PoolHandle pool = Create(configuration);
  EXPECT_EQ(Allocate(pool, 512) % (2 * kMiB), 0u);
}

TEST_F(RuntimeFacts, AllocationsGoToTheInnermostScopeElseToTheDefaultPool) {
  const CUdeviceptr outside = Counted(runtime().Allocate(0, 1000, nullptr).value());
  const ScopeHandle scope = BeginScope(Create(Configured("scoped")));
  const CUdeviceptr inside = Counted(runtime().Allocate(-1, 1000, nullptr).value());
  EXPECT_EQ(OwnerOf(outside), "default");
  EXPECT_EQ(OwnerOf(inside), "scoped");
  ASSERT_TRUE(runtime().scopes().End(scope).ok());
}

TEST_F(RuntimeFacts, AScopeLetsOtherDevicesThrough) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const ScopeHandle scope = BeginScope(Create(Configured("scoped")));
  const CUdeviceptr far = Counted(runtime().Allocate(1, 1000, nullptr).value());
  EXPECT_EQ(OwnerOf(far), "default");
  ASSERT_TRUE(runtime().scopes().End(scope).ok());
}

TEST_F(RuntimeFacts, AStreamNamesItsDevice) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const PrimaryContext far = PrimaryContext::Retain(driver(), 1).value();
  std::optional<ContextGuard> current(std::in_place, driver(), far);
  const TestStream stream;
  current.reset();
  const CUdeviceptr address = Counted(runtime().Allocate(-1, 1000, stream).value());
  EXPECT_EQ(std::static_pointer_cast<Pool>(runtime().addresses().OwnerOf(address).value())->device(), 1);
}

TEST_F(RuntimeFacts, AScopeOfADestroyedPoolSaysSo) {
  const PoolHandle pool = Create(Configured("gone"));
  const ScopeHandle scope = BeginScope(pool);
  Destroy(pool);
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
  std::thread([&] {
    for (const int device : {0, -1}) {
      const Result<CUdeviceptr> block = runtime().Allocate(device, 1000, stream);
      ExpectOk(block.ok() ? runtime().Free(*block) : block.status());
    }
  }).join();
}

TEST_F(RuntimeFacts, PointersThatAreNoBlocksAreNotFound) {
  const CUdeviceptr address = Counted(runtime().Allocate(0, 4096, nullptr).value());
  ExpectNotFound(runtime().Free(0), "0x0");
  ExpectNotFound(runtime().Free(0x1234), "0x1234");
  ExpectNotFound(runtime().Free(address + 512), "inside a live block");
  ExpectNotFound(runtime().RecordStream(address + 512, nullptr), "inside a live block");
  ExpectNotFound(runtime().RecordStream(0x1234, nullptr), "0x1234");
  Free(address);
  ExpectNotFound(runtime().Free(address), "freed already");
  ExpectNotFound(runtime().RecordStream(address, nullptr), "freed already");
}

TEST_F(RuntimeFacts, StaleHandlesAreErrors) {
  const PoolHandle pool = Create(Configured("short"));
  Destroy(pool);
  EXPECT_EQ(runtime().AllocateFrom(pool, 1, nullptr).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(runtime().DestroyPool(pool).code(), StatusCode::kNotFound);
  EXPECT_EQ(runtime().AllocateFrom(0, 1, nullptr).status().code(), StatusCode::kNotFound);
}

TEST_F(RuntimeFacts, AReleasedStreamsHandleMayMeanAnotherStream) {
  const PoolHandle pool = Create(Configured("recycled"));
  std::optional<TestStream> stream(std::in_place);
  const CUdeviceptr freed = Allocate(pool, kMiB, *stream);
  const CUdeviceptr live = Allocate(pool, kMiB, *stream);
  Free(freed);
  stream.reset();
  // Nobody waits for the released stream: every stream may take its free memory, and the live block once freed.
  const TestStream other;
  EXPECT_EQ(Allocate(pool, kMiB, other), freed);
  Free(live);
  EXPECT_EQ(Allocate(pool, kMiB, other), live);
}

TEST_F(RuntimeFacts, DefaultStreamsAreNotReleased) {
  for (const CUstream stream : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    ExpectInvalid(runtime().ReleaseStream(stream), "default stream");
  }
}

}  // namespace
}  // namespace commpool::internal::testing
