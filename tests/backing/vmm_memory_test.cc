// The driver calls of the vmm backing: handle types and their fallback, GPUDirect RDMA, location, access.
#include <unistd.h>

#include <cstring>

#include "src/library/backing/territory.h"
#include "src/library/driver/device_info.h"
#include "tests/backing/backing_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr unsigned kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

class VmmMemory : public BackingTest {
 protected:
  void SetUp() override {
    if (!info().virtual_memory) GTEST_SKIP() << "the device has no cuMemCreate";
  }

  // The tests' driver, without refusals seen by earlier tests.
  Driver FreshDriver() const {
    Driver fresh = driver();
    fresh.refusals = std::make_shared<LearnedRefusals>();
    return fresh;
  }
  DeviceInfo info() const { return DescribeDevice(driver(), 0).value(); }
  std::unique_ptr<Backing> MakeVmm(const Placement& placement = OnDevice()) {
    return Make({.kind = BackingKind::kVmm, .placement = placement});
  }
  CUmemAllocationProp PropertiesOf(const Segment& segment) {
    CUmemAllocationProp properties = {};
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(cuda().cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(segment.address())), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuMemGetAllocationPropertiesFromHandle(&properties, handle), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuMemRelease(handle), CUDA_SUCCESS);
    return properties;
  }
};

TEST_F(VmmMemory, IsDeviceMemoryThatOtherProcessesCanImport) {
  const CUmemAllocationProp properties = PropertiesOf(*MakeVmm()->Make({.bytes = 1}).value());
  EXPECT_EQ(properties.type, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(properties.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(properties.location.id, 0);
  EXPECT_EQ(properties.requestedHandleTypes & kDescriptor, info().file_descriptor_handles ? kDescriptor : 0u);
}

TEST_F(VmmMemory, IsCapableOfGpuDirectRdmaWhereTheDeviceIs) {
  const std::unique_ptr<Segment> segment = MakeVmm()->Make({.bytes = 1}).value();
  EXPECT_EQ(PropertiesOf(*segment).allocFlags.gpuDirectRDMACapable, info().gpu_direct_rdma ? 1 : 0);
}

TEST_F(VmmMemory, IsOneHandleASegmentHoweverLarge) {
  std::unique_ptr<Backing> backing = MakeVmm();
  std::unique_ptr<Segment> segment = backing->Make({.bytes = 33 * backing->granularity()}).value();
  CUdeviceptr base = 0;
  size_t bytes = 0;
  const CurrentContext context;
  ASSERT_EQ(cuda().cuMemGetAddressRange(&base, &bytes, segment->address() + segment->bytes() - 1), CUDA_SUCCESS);
  EXPECT_EQ(base, segment->address());
  EXPECT_EQ(bytes, segment->bytes());
}

TEST_F(VmmMemory, GranularityIsAMultipleOfTheDrivers) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  size_t recommended = 0;
  ASSERT_EQ(cuda().cuMemGetAllocationGranularity(&recommended, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
            CUDA_SUCCESS);
  EXPECT_EQ(MakeVmm()->granularity() % recommended, 0u);
}

TEST_F(VmmMemory, GranularityIsAskedForTheMemoryThatIsMade) {
  static CUmemAllocationProp asked;
  Driver asking = driver();
  asking.cuda.cuMemGetAllocationGranularity = [](size_t* granularity, const CUmemAllocationProp* properties,
                                                 CUmemAllocationGranularity_flags flags) {
    asked = *properties;
    return SharedDriver()->cuda.cuMemGetAllocationGranularity(granularity, properties, flags);
  };
  ASSERT_TRUE(MakeBacking(asking, {.placement = OnDevice(DeviceCountOfTests() - 1)}).ok());
  EXPECT_EQ(asked.type, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(asked.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(asked.location.id, DeviceCountOfTests() - 1);
  if (!info().host_numa_memory) return;
  ASSERT_TRUE(MakeBacking(asking, {.placement = OnHost(0)}).ok());
  EXPECT_EQ(asked.location.type, CU_MEM_LOCATION_TYPE_HOST_NUMA);
}

TEST_F(VmmMemory, GranularityIsMulticastsWhereThatIsLarger) {
  Driver coarse = driver();
  coarse.cuda.cuMulticastGetGranularity = [](size_t* granularity, const CUmulticastObjectProp* object,
                                             CUmulticastGranularity_flags flags) {
    EXPECT_EQ(flags, CU_MULTICAST_GRANULARITY_MINIMUM);
    EXPECT_EQ(object->numDevices, static_cast<unsigned>(DeviceCountOfTests())) << "the device and its peers";
    EXPECT_EQ(object->size % (size_t{2} << 20), 0u);
    EXPECT_GT(object->size, 0u);
    EXPECT_EQ(object->handleTypes, kDescriptor);
    *granularity = size_t{16} << 20;
    return CUDA_SUCCESS;
  };
  if (!info().multicast) GTEST_SKIP() << "the device has no multicast";
  std::unique_ptr<Backing> backing = MakeBacking(coarse, {.kind = BackingKind::kVmm}).value();
  EXPECT_EQ(backing->granularity(), uint64_t{16} << 20);
  EXPECT_EQ(backing->Make({.bytes = 1}).value()->bytes(), uint64_t{16} << 20);
  EXPECT_EQ(MakeBacking(coarse, {.kind = BackingKind::kVmm, .placement = OnHost()}).value()->granularity(),
            uint64_t{2} << 20)
      << "host memory is in no multicast";
  if (!driver().nccl.available()) return;
  EXPECT_EQ(MakeBacking(coarse, {.kind = BackingKind::kNccl}).value()->granularity(), uint64_t{16} << 20);
}

TEST_F(VmmMemory, AsksForADeniedHandleTypeOnce) {
  COMMPOOL_REQUIRE_EMULATOR("its fabric handles are denied, and it counts calls");
  ASSERT_EQ(EmulatorSetting("fabric"), "denied");
  const Driver fresh = FreshDriver();
  std::unique_ptr<Backing> backing = MakeBacking(fresh, {.kind = BackingKind::kVmm}).value();
  const uint64_t before = CallCount("cuMemCreate");
  ASSERT_TRUE(backing->Make({.bytes = 1}).ok());
  EXPECT_EQ(CallCount("cuMemCreate"), before + 2);
  ASSERT_TRUE(backing->Make({.bytes = 1}).ok());
  EXPECT_EQ(CallCount("cuMemCreate"), before + 3);
  ASSERT_TRUE(MakeBacking(fresh, {.kind = BackingKind::kVmm}).value()->Make({.bytes = 1}).ok());
  EXPECT_EQ(CallCount("cuMemCreate"), before + 4) << "another backing knows";
}

TEST_F(VmmMemory, DeviceMemoryStillAsksForWhatHostMemoryIsRefused) {
  COMMPOOL_REQUIRE_EMULATOR("its fabric handles are denied");
  const Driver fresh = FreshDriver();
  ASSERT_TRUE(MakeBacking(fresh, {.placement = OnHost()}).value()->Make({.bytes = 1}).ok());
  EXPECT_FALSE(fresh.refusals->fabric_handles);
  ASSERT_TRUE(MakeBacking(fresh, {.placement = OnDevice()}).value()->Make({.bytes = 1}).ok());
  EXPECT_TRUE(fresh.refusals->fabric_handles);
}

TEST_F(VmmMemory, FallsBackToFileDescriptorsAfterAnyRefusal) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  for (const CUresult refusal : {CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_INVALID_VALUE}) {
    const Driver fresh = FreshDriver();
    std::unique_ptr<Backing> backing = MakeBacking(fresh, {.kind = BackingKind::kVmm}).value();
    InjectedFault injected({.call = "cuMemCreate", .result = refusal});
    EXPECT_EQ(PropertiesOf(*backing->Make({.bytes = 1}).value()).requestedHandleTypes, kDescriptor) << refusal;
    EXPECT_EQ(fresh.refusals->fabric_handles, refusal != CUDA_ERROR_INVALID_VALUE) << "another failure is no refusal";
  }
}

TEST_F(VmmMemory, AsksARealDriverForFabricHandlesOnlyWhereTheHostHasChannels) {
  COMMPOOL_REQUIRE_EMULATOR("it stands in for a real driver");
  Driver real = FreshDriver();
  real.kind = DriverChoice::kCuda;
  const bool channels = access("/dev/nvidia-caps-imex-channels", F_OK) == 0;
  const uint64_t before = CallCount("cuMemCreate");
  ASSERT_TRUE(MakeBacking(real, {.kind = BackingKind::kVmm}).value()->Make({.bytes = 1}).ok());
  EXPECT_EQ(CallCount("cuMemCreate"), before + (channels ? 2 : 1));
}

TEST_F(VmmMemory, WithoutAnyHandleTypeIsMadeButMakesNoWindows) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  const Driver fresh = FreshDriver();
  std::unique_ptr<Backing> backing = MakeBacking(fresh, {.kind = BackingKind::kVmm}).value();
  InjectedFault injected({.call = "cuMemCreate", .result = CUDA_ERROR_NOT_SUPPORTED, .count = 2});
  EXPECT_EQ(PropertiesOf(*backing->Make({.bytes = 1}).value()).requestedHandleTypes, CU_MEM_HANDLE_TYPE_NONE);
  EXPECT_NE(backing->CanRegisterWindow().message().find("shareable"), std::string::npos);
}

TEST_F(VmmMemory, OutOfMemoryIsNoReasonToTryOtherHandleTypes) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  std::unique_ptr<Backing> backing = MakeVmm();
  InjectedFault injected({.call = "cuMemCreate", .result = CUDA_ERROR_OUT_OF_MEMORY});
  EXPECT_EQ(backing->Make({.bytes = 1}).status().code(), StatusCode::kOutOfMemory);
}

TEST_F(VmmMemory, RefusedWithEveryHandleTypeIsAnError) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  std::unique_ptr<Backing> backing = MakeVmm();
  {
    InjectedFault injected({.call = "cuMemCreate", .result = CUDA_ERROR_NOT_SUPPORTED, .count = 3});
    ExpectFailure(backing->Make({.bytes = 1}).status(), StatusCode::kNotSupported, "cuMemCreate of 2 MiB on device 0");
  }
  EXPECT_TRUE(backing->Make({.bytes = 1}).ok());
}

TEST_F(VmmMemory, AGrantIsForOneSegment) {
  if (ReachablePeer() < 0) GTEST_SKIP() << "no other device reaches device 0's memory";
  const std::unique_ptr<Backing> backing = MakeVmm();
  const std::unique_ptr<Segment> granted = backing->Make({.bytes = 1}).value();
  const std::unique_ptr<Segment> other = backing->Make({.bytes = 1}).value();
  ASSERT_TRUE(granted->Grant(ReachablePeer()).ok());
  EXPECT_EQ(AccessOf(ReachablePeer(), granted->address()), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(AccessOf(ReachablePeer(), other->address()), CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

class VmmHostMemory : public VmmMemory {
 protected:
  void SetUp() override {
    if (!info().host_numa_memory) GTEST_SKIP() << "the device maps no memory of host NUMA nodes";
  }
};

TEST_F(VmmHostMemory, IsOnTheNodeNearestToTheDevice) {
  std::unique_ptr<Backing> backing = MakeVmm(OnHost());
  const int node = NearestNode(info());
  EXPECT_EQ(backing->placement().numa_node, node);
  const CUmemAllocationProp properties = PropertiesOf(*backing->Make({.bytes = 1}).value());
  EXPECT_EQ(properties.location.type, CU_MEM_LOCATION_TYPE_HOST_NUMA);
  EXPECT_EQ(properties.location.id, node);
  EXPECT_EQ(properties.allocFlags.gpuDirectRDMACapable, 0);
}

TEST_F(VmmHostMemory, IsOnNodeZeroWhereTheDriverNamesNone) {
  const Driver driver = DriverWhere(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, -1);
  EXPECT_EQ(MakeBacking(driver, {.placement = OnHost()}).value()->placement().numa_node, 0);
}

TEST_F(VmmHostMemory, IsOnTheNamedNode) {
  const Driver driver = DriverWhere(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 1);
  EXPECT_EQ(MakeBacking(driver, {.placement = OnHost(0)}).value()->placement().numa_node, 0);
}

TEST_F(VmmHostMemory, IsTheCpusAgainWhenItWasMappedAgain) {
  std::unique_ptr<Segment> segment = MakeVmm(OnHost(0))->Make({.bytes = 1}).value();
  ASSERT_TRUE(segment->territory()->UnmapAll().ok());
  ASSERT_TRUE(segment->territory()->MapAll().ok());
  EXPECT_EQ(AccessOf(0, segment->address(), CU_MEM_LOCATION_TYPE_HOST_NUMA), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

TEST_F(VmmHostMemory, IsReadAndWrittenByTheCpuToo) {
  std::unique_ptr<Segment> segment = MakeVmm(OnHost())->Make({.bytes = 1}).value();
  std::memset(reinterpret_cast<void*>(segment->address()), 0x3c, segment->bytes());
  EXPECT_EQ(Read(0, segment->address(), segment->bytes()), std::vector<uint8_t>(segment->bytes(), 0x3c));
  ASSERT_EQ(Fill(0, segment->address(), 0x4d, 4096), CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<const uint8_t*>(segment->address() + 4095), 0x4d);
}

TEST_F(VmmHostMemory, SaysWhyNcclDoesNotTakeIt) {
  std::unique_ptr<Backing> backing = MakeVmm(OnHost());
  EXPECT_FALSE(backing->CanRegisterLocal().ok());
  EXPECT_EQ(backing->CanRegisterWindow().ok(), driver().nccl.has_host_windows());
}

}  // namespace
}  // namespace commpool::internal::testing
