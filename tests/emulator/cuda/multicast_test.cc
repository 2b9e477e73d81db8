// Multicast objects: alignment, order of calls, and errors for mistakes.

#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

using Handle = CUmemGenericAllocationHandle;

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

  static CUmulticastObjectProp ObjectProperties(unsigned devices = 2) {
    return {.numDevices = devices, .size = kBytes, .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, .flags = 0};
  }

  static CUresult Add(Handle object, CUdevice device) {
    return COMMPOOL_EXTENSION(cuMulticastAddDevice)(object, device);
  }
  static CUresult Unbind(Handle object, CUdevice device, size_t offset, size_t bytes) {
    return COMMPOOL_EXTENSION(cuMulticastUnbind)(object, device, offset, bytes);
  }

  Handle Object(unsigned devices = 2, int added = 2) {
    const CUmulticastObjectProp properties = ObjectProperties(devices);
    const Handle object = made_.emplace_back(Get(COMMPOOL_EXTENSION(cuMulticastCreate), &properties));
    for (int device = 0; device < added; ++device) {
      EXPECT_EQ(Add(object, device), CUDA_SUCCESS);
    }
    return object;
  }

  Handle Memory(int device, CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                CUmemLocationType location = CU_MEM_LOCATION_TYPE_DEVICE) {
    CUmemAllocationProp properties = PropertiesAt({.type = location, .id = device});
    properties.requestedHandleTypes = types;
    return made_.emplace_back(CreateMemory(properties, kBytes));
  }

  CUresult Bind(Handle object, Handle memory, size_t bytes = kBytes, size_t offset = 0, size_t memory_offset = 0) {
    return COMMPOOL_EXTENSION(cuMulticastBindMem)(object, offset, memory, memory_offset, bytes, 0);
  }

  // Before the end of the test, which releases the others.
  void Release(Handle handle) {
    EXPECT_EQ(cuda().cuMemRelease(handle), CUDA_SUCCESS);
    std::erase(made_, handle);
  }
  ~Multicast() override {
    for (const Handle handle : made_) EXPECT_EQ(cuda().cuMemRelease(handle), CUDA_SUCCESS);
  }

 private:
  std::vector<Handle> made_;
};

TEST_F(Multicast, IsSupportedByEveryDevice) {
  EXPECT_EQ(Get(cuda().cuDeviceGetAttribute, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0), 1);
}

TEST_F(Multicast, ObjectsTakeMemoryOfEachOfTheirDevices) {
  const Handle object = Object();
  const Handle first = Memory(0);
  const Handle second = Memory(1);
  EXPECT_EQ(Bind(object, first), CUDA_SUCCESS);
  EXPECT_EQ(Bind(object, second, 2 * kGranularity, kGranularity, 2 * kGranularity), CUDA_SUCCESS);
  EXPECT_EQ(Unbind(object, 0, 0, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(Unbind(object, 1, kGranularity, 2 * kGranularity), CUDA_SUCCESS);
  EXPECT_EQ(Bind(object, first), CUDA_SUCCESS);  // again
}

TEST_F(Multicast, MemoryIsBoundByItsAddressToo) {
  const Handle object = Object(1, 1);
  const Handle memory = Memory(0);
  const CUdeviceptr address = Get(cuda().cuMemAddressReserve, kBytes, 0, 0, 0);
  const auto bind = [&](CUdeviceptr begin, size_t bytes, unsigned long long flags = 0) {
    return COMMPOOL_EXTENSION(cuMulticastBindAddr)(object, 0, begin, bytes, flags);
  };
  EXPECT_EQ(bind(address, kBytes), CUDA_ERROR_INVALID_VALUE) << "not mapped";
  ASSERT_EQ(cuda().cuMemMap(address, kBytes, 0, memory, 0), CUDA_SUCCESS);
  EXPECT_EQ(bind(address + 4096, kGranularity), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(bind(address, kBytes, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(bind(address + kGranularity, kGranularity), CUDA_SUCCESS);
  EXPECT_EQ(Unbind(object, 0, 0, kGranularity), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemUnmap(address, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemAddressFree(address, kBytes), CUDA_SUCCESS);
}

TEST_F(Multicast, PropertiesThatAreRefused) {
  Handle object = 0;
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
  const Handle object = Object(2, 1);
  EXPECT_EQ(Add(object, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Add(object, -1), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(Add(object, 1000), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(Add(object + 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Add(object, 1), CUDA_SUCCESS);
  EXPECT_EQ(Add(object, 2), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Multicast, BindingBeforeAllDevicesAreAddedIsReported) {
  const Handle object = Object(2, 1);
  const Handle memory = Memory(0);
  EXPECT_EQ(Bind(object, memory), CUDA_ERROR_SYSTEM_NOT_READY);
  EXPECT_TRUE(AnyContains(TakeReports(), "multicast memory bound before all devices were added"));
  EXPECT_EQ(Add(object, 1), CUDA_SUCCESS);
  EXPECT_EQ(Bind(object, memory), CUDA_SUCCESS);
}

TEST_F(Multicast, MemoryThatDoesNotFitIsRefused) {
  const Handle object = Object();
  const Handle memory = Memory(0);
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
}

TEST_F(Multicast, MemoryOfTheWrongKindIsRefused) {
  const Handle object = Object();
  EXPECT_EQ(Bind(object, Memory(2)), CUDA_ERROR_INVALID_DEVICE) << "elsewhere";
  EXPECT_EQ(Bind(object, Memory(0, CU_MEM_HANDLE_TYPE_NONE)), CUDA_ERROR_INVALID_VALUE) << "not shareable";
  const Handle of_host = Memory(0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_LOCATION_TYPE_HOST_NUMA);
  EXPECT_EQ(Bind(object, of_host), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(Multicast, UnbindingOtherwiseThanBoundIsReported) {
  const Handle object = Object();
  const Handle memory = Memory(0);
  ASSERT_EQ(Bind(object, memory), CUDA_SUCCESS);
  EXPECT_EQ(Unbind(object, 0, 0, 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Unbind(object, 2, 0, kBytes), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Unbind(object, -1, 0, kBytes), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_TRUE(TakeReports().empty());
  EXPECT_EQ(Unbind(object, 0, 0, kGranularity), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(AnyContains(TakeReports(), "multicast memory unbound otherwise than it was bound"));
}

TEST_F(Multicast, ObjectsThatAreLeftAreLeaks) {
  const Handle object = Object();
  EXPECT_TRUE(AnyContains(EmulatorLeaks(), "multicast object of 8388608 bytes, 0 parts bound"));
  Release(object);
  EXPECT_EQ(cuda().cuMemRelease(object), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace commpool::internal::testing
