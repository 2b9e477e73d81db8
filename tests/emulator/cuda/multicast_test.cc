// Multicast objects: alignment, order of calls, and errors for mistakes.
#include <cuda.h>

#include <string>

#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr size_t kGranularity = 2 << 20;
constexpr size_t kBytes = 4 * kGranularity;

// Our library's table can ask for the granularity, and has no function to make an object.
template <typename Table>
constexpr bool kMakesObjects = requires(Table table) {
  table.cuMulticastCreate;
};
template <typename Table>
constexpr bool kAsksGranularity = requires(Table table) {
  table.cuMulticastGetGranularity;
};
static_assert(!kMakesObjects<CudaDriver> && kAsksGranularity<CudaDriver>);

class Multicast : public MachineTest {
 protected:
  static void SetUpTestSuite() { DeclareMachine("devices=4,multicast_granularity=2MiB"); }

  static CUmulticastObjectProp ObjectProperties(unsigned devices = 2, size_t bytes = kBytes) {
    CUmulticastObjectProp properties = {};
    properties.numDevices = devices;
    properties.size = bytes;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return properties;
  }

  CUmemGenericAllocationHandle Object(unsigned devices = 2, unsigned added = 2) {
    const CUmulticastObjectProp properties = ObjectProperties(devices);
    CUmemGenericAllocationHandle object = 0;
    EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastCreate)(&object, &properties), CUDA_SUCCESS);
    for (unsigned device = 0; device < added; ++device) {
      EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastAddDevice)(object, static_cast<CUdevice>(device)), CUDA_SUCCESS);
    }
    return object;
  }

  CUmemGenericAllocationHandle Memory(int device,
                                      CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      CUmemLocationType location = CU_MEM_LOCATION_TYPE_DEVICE) {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {.type = location, .id = device};
    properties.requestedHandleTypes = types;
    CUmemGenericAllocationHandle memory = 0;
    EXPECT_EQ(cuda().cuMemCreate(&memory, kBytes, &properties, 0), CUDA_SUCCESS);
    return memory;
  }

  CUresult Bind(CUmemGenericAllocationHandle object, CUmemGenericAllocationHandle memory, size_t bytes = kBytes,
                size_t offset = 0, size_t memory_offset = 0) {
    return COMMPOOL_EXTENSION(cuMulticastBindMem)(object, offset, memory, memory_offset, bytes, 0);
  }

  void Release(std::initializer_list<CUmemGenericAllocationHandle> handles) {
    for (const CUmemGenericAllocationHandle handle : handles) EXPECT_EQ(cuda().cuMemRelease(handle), CUDA_SUCCESS);
  }
};

TEST_F(Multicast, IsSupportedByEveryDevice) {
  int supported = 0;
  EXPECT_EQ(cuda().cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0), CUDA_SUCCESS);
  EXPECT_EQ(supported, 1);
}

TEST_F(Multicast, ObjectsTakeMemoryOfEachOfTheirDevices) {
  const CUmemGenericAllocationHandle object = Object();
  const CUmemGenericAllocationHandle first = Memory(0);
  const CUmemGenericAllocationHandle second = Memory(1);
  EXPECT_EQ(Bind(object, first), CUDA_SUCCESS);
  EXPECT_EQ(Bind(object, second, 2 * kGranularity, kGranularity, 2 * kGranularity), CUDA_SUCCESS);
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastUnbind)(object, 0, 0, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastUnbind)(object, 1, kGranularity, 2 * kGranularity), CUDA_SUCCESS);
  EXPECT_EQ(Bind(object, first), CUDA_SUCCESS);  // again
  Release({object, first, second});
}

TEST_F(Multicast, MemoryIsBoundByItsAddressToo) {
  const CUmemGenericAllocationHandle object = Object(1, 1);
  const CUmemGenericAllocationHandle memory = Memory(0);
  CUdeviceptr address = 0;
  ASSERT_EQ(cuda().cuMemAddressReserve(&address, kBytes, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastBindAddr)(object, 0, address, kBytes, 0),
            CUDA_ERROR_INVALID_VALUE);  // not mapped
  ASSERT_EQ(cuda().cuMemMap(address, kBytes, 0, memory, 0), CUDA_SUCCESS);
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastBindAddr)(object, 0, address + 4096, kGranularity, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastBindAddr)(object, 0, address, kBytes, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastBindAddr)(object, 0, address + kGranularity, kGranularity, 0), CUDA_SUCCESS);
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastUnbind)(object, 0, 0, kGranularity), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemUnmap(address, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemAddressFree(address, kBytes), CUDA_SUCCESS);
  Release({object, memory});
}

TEST_F(Multicast, PropertiesThatAreRefused) {
  CUmemGenericAllocationHandle object = 0;
  const auto create = [&](auto change) {
    CUmulticastObjectProp properties = ObjectProperties();
    change(properties);
    return COMMPOOL_EXTENSION(cuMulticastCreate)(&object, &properties);
  };
  const CUmulticastObjectProp good = ObjectProperties();
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastCreate)(nullptr, &good), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastCreate)(&object, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create([](auto& properties) { properties.numDevices = 0; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create([](auto& properties) { properties.size = 0; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create([](auto& properties) { properties.size = kGranularity + 4096; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create([](auto& properties) { properties.flags = 1; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create([](auto& properties) { properties.handleTypes = 1 << 20; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create([](auto& properties) { properties.handleTypes = CU_MEM_HANDLE_TYPE_FABRIC; }),
            CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(object, 0u);
}

TEST_F(Multicast, DevicesAreAddedOnceAndNoMoreThanDeclared) {
  const CUmemGenericAllocationHandle object = Object(2, 1);
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastAddDevice)(object, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastAddDevice)(object, -1), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastAddDevice)(object, 1000), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastAddDevice)(object + 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastAddDevice)(object, 1), CUDA_SUCCESS);
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastAddDevice)(object, 2), CUDA_ERROR_INVALID_VALUE);
  Release({object});
}

TEST_F(Multicast, BindingBeforeAllDevicesAreAddedIsReported) {
  const CUmemGenericAllocationHandle object = Object(2, 1);
  const CUmemGenericAllocationHandle memory = Memory(0);
  EXPECT_EQ(Bind(object, memory), CUDA_ERROR_SYSTEM_NOT_READY);
  EXPECT_TRUE(AnyContains(TakeReports(), "multicast memory bound before all devices were added"));
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastAddDevice)(object, 1), CUDA_SUCCESS);
  EXPECT_EQ(Bind(object, memory), CUDA_SUCCESS);
  Release({object, memory});
}

TEST_F(Multicast, MemoryThatDoesNotFitIsRefused) {
  const CUmemGenericAllocationHandle object = Object();
  const CUmemGenericAllocationHandle memory = Memory(0);
  EXPECT_EQ(Bind(object, memory, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Bind(object, memory, 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Bind(object, memory, kGranularity, 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Bind(object, memory, kGranularity, 0, 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Bind(object, memory, kBytes, kGranularity), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Bind(object, memory, kBytes, 0, kGranularity), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Bind(object, object), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Bind(memory, memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastBindMem)(object, 0, memory, 0, kBytes, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Bind(object, memory), CUDA_SUCCESS);
  EXPECT_EQ(Bind(object, memory, kGranularity, kGranularity), CUDA_ERROR_INVALID_VALUE);  // the range is bound already
  Release({object, memory});
}

TEST_F(Multicast, MemoryOfTheWrongKindIsRefused) {
  const CUmemGenericAllocationHandle object = Object();
  const CUmemGenericAllocationHandle elsewhere = Memory(2);
  const CUmemGenericAllocationHandle unshareable = Memory(0, CU_MEM_HANDLE_TYPE_NONE);
  const CUmemGenericAllocationHandle of_host =
      Memory(0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_LOCATION_TYPE_HOST_NUMA);
  EXPECT_EQ(Bind(object, elsewhere), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(Bind(object, unshareable), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Bind(object, of_host), CUDA_ERROR_NOT_SUPPORTED);
  Release({object, elsewhere, unshareable, of_host});
}

TEST_F(Multicast, UnbindingOtherwiseThanBoundIsReported) {
  const CUmemGenericAllocationHandle object = Object();
  const CUmemGenericAllocationHandle memory = Memory(0);
  ASSERT_EQ(Bind(object, memory), CUDA_SUCCESS);
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastUnbind)(object, 0, 0, 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastUnbind)(object, 2, 0, kBytes), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastUnbind)(object, -1, 0, kBytes), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_TRUE(TakeReports().empty());
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastUnbind)(object, 0, 0, kGranularity), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(AnyContains(TakeReports(), "multicast memory unbound otherwise than it was bound"));
  Release({object, memory});
}

TEST_F(Multicast, ObjectsThatAreLeftAreLeaks) {
  const CUmemGenericAllocationHandle object = Object();
  EXPECT_TRUE(AnyContains(EmulatorLeaks(), "multicast object of 8388608 bytes, 0 parts bound"));
  Release({object});
  EXPECT_EQ(cuda().cuMemRelease(object), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace commpool::internal::testing
