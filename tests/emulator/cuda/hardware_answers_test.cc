// Surprising answers of the real driver: a table, and calls while work runs.
#include <future>
#include <vector>

#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class HardwareAnswers : public MachineTest {
 protected:
  using MachineTest::MachineTest;
  static void SetUpTestSuite() { DeclareMachine("devices=4;memory=64MiB"); }

  CUresult Grant(CUdeviceptr address, uint64_t bytes, CUmemLocationType type, int id, int flags) {
    const CUmemAccessDesc access{{.type = type, .id = id}, static_cast<CUmemAccess_flags>(flags)};
    return cuda().cuMemSetAccess(address, bytes, &access, 1);
  }
};

// Two units of addresses, a handle of two units mapped there.
class MappedAnswers : public HardwareAnswers {
 protected:
  explicit MappedAnswers(int device = 0)
      : HardwareAnswers(device), handle_(CreateMemory(Properties(device), 2 * kUnit)) {
    EXPECT_EQ(cuda().cuMemAddressReserve(&address_, 2 * kUnit, 0, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuMemMap(address_, 2 * kUnit, 0, handle_, 0), CUDA_SUCCESS);
    EXPECT_EQ(Grant(address_, 2 * kUnit, CU_MEM_LOCATION_TYPE_DEVICE, device, 3), CUDA_SUCCESS);
  }
  ~MappedAnswers() override {
    cuda().cuMemUnmap(address_, 2 * kUnit);
    TakeReports();  // reports a second unmap where the test made the first
    EXPECT_EQ(cuda().cuMemRelease(handle_), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuMemAddressFree(address_, 2 * kUnit), CUDA_SUCCESS);
  }

  CUdeviceptr address_ = 0;
  const CUmemGenericAllocationHandle handle_;
};

TEST_F(MappedAnswers, ToAccess) {
  struct Question {
    const char* what;
    uint64_t bytes;
    CUmemLocationType type;
    int id;
    int flags;
    CUresult answer;
  };
  const Question questions[] = {
      {"half a mapping", kUnit, CU_MEM_LOCATION_TYPE_DEVICE, 0, 3, CUDA_ERROR_INVALID_VALUE},
      {"unknown flags", 2 * kUnit, CU_MEM_LOCATION_TYPE_DEVICE, 0, 7, CUDA_ERROR_INVALID_VALUE},
      {"write only", 2 * kUnit, CU_MEM_LOCATION_TYPE_DEVICE, 0, 2, CUDA_ERROR_INVALID_VALUE},
      {"device 77", 2 * kUnit, CU_MEM_LOCATION_TYPE_DEVICE, 77, 3, CUDA_ERROR_INVALID_VALUE},
      {"device -1", 2 * kUnit, CU_MEM_LOCATION_TYPE_DEVICE, -1, 3, CUDA_ERROR_INVALID_VALUE},
      {"the CPU", 2 * kUnit, CU_MEM_LOCATION_TYPE_HOST, 0, 3, CUDA_ERROR_NOT_SUPPORTED},
      {"a node's CPU", 2 * kUnit, CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, 3, CUDA_ERROR_NOT_SUPPORTED},
      {"a peer", 2 * kUnit, CU_MEM_LOCATION_TYPE_DEVICE, 1, 3, CUDA_SUCCESS},
  };
  for (const Question& question : questions) {
    EXPECT_EQ(Grant(address_, question.bytes, question.type, question.id, question.flags), question.answer)
        << question.what;
  }
}

TEST_F(MappedAnswers, ToMappingsUnlikeTheHandle) {
  ASSERT_EQ(cuda().cuMemUnmap(address_, 2 * kUnit), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemMap(address_, kUnit, kUnit, handle_, 0), CUDA_ERROR_NOT_SUPPORTED) << "offset";
  EXPECT_EQ(cuda().cuMemMap(address_, kUnit, 0, handle_, 0), CUDA_ERROR_NOT_SUPPORTED) << "half";
  EXPECT_EQ(cuda().cuMemMap(address_, 4 * kUnit, 0, handle_, 0), CUDA_ERROR_NOT_SUPPORTED) << "larger";
  EXPECT_EQ(cuda().cuMemMap(address_ + 4096, 2 * kUnit, 0, handle_, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuMemMap(address_, 0, 0, handle_, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MappedAnswers, UnmappingNothingIsNoErrorButReportedAndHalfAMappingIsOne) {
  EXPECT_EQ(cuda().cuMemUnmap(address_, kUnit), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuMemUnmap(address_, 2 * kUnit), CUDA_SUCCESS);
  EXPECT_TRUE(TakeReports().empty());
  EXPECT_EQ(cuda().cuMemUnmap(address_, 2 * kUnit), CUDA_SUCCESS);
  EXPECT_TRUE(AnyContains(TakeReports(), "unmapping what is not mapped"));
}

TEST_F(MappedAnswers, ACopyNeedsTheAccessOfItsStreamsDevice) {
  char byte = 0;
  EXPECT_EQ(cuda().cuMemcpyDtoH(&byte, address_, 1), CUDA_SUCCESS);
  ASSERT_EQ(Grant(address_, 2 * kUnit, CU_MEM_LOCATION_TYPE_DEVICE, 1, 3), CUDA_SUCCESS);
  ASSERT_EQ(Grant(address_, 2 * kUnit, CU_MEM_LOCATION_TYPE_DEVICE, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemcpyDtoH(&byte, address_, 1), CUDA_ERROR_INVALID_VALUE) << "another device's does not count";
}

TEST_F(MappedAnswers, NoByteAfterTheMappingIsSet) {
  EXPECT_EQ(cuda().cuMemsetD8Async(address_, 0, 2 * kUnit, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemsetD8Async(address_, 0, 2 * kUnit + 1, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(HardwareAnswers, ToCreation) {
  struct Question {
    const char* what;
    CUmemLocationType type;
    int handle_types;
    int usage;
    CUresult answer;
  };
  const Question questions[] = {
      {"Windows handle", CU_MEM_LOCATION_TYPE_DEVICE, 2, 0, CUDA_ERROR_INVALID_VALUE},
      {"Windows KMT handle", CU_MEM_LOCATION_TYPE_DEVICE, 4, 0, CUDA_ERROR_INVALID_VALUE},
      {"tile pool", CU_MEM_LOCATION_TYPE_DEVICE, 0, 1, CUDA_ERROR_INVALID_VALUE},
      {"shared memory of any node", CU_MEM_LOCATION_TYPE_HOST, 1, 0, CUDA_ERROR_INVALID_VALUE},
  };
  for (const Question& question : questions) {
    CUmemAllocationProp properties = Properties();
    properties.location.type = question.type;
    properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(question.handle_types);
    properties.allocFlags.usage = static_cast<unsigned short>(question.usage);
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(cuda().cuMemCreate(&handle, kUnit, &properties, 0), question.answer) << question.what;
  }
}

TEST_F(HardwareAnswers, ImportingWhatIsNoExportIsUnknown) {
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(cuda().cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(intptr_t{-1}),
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_ERROR_UNKNOWN);
}

TEST_F(HardwareAnswers, ADeviceDoesNotFragment) {
  std::vector<CUmemGenericAllocationHandle> handles;
  for (int index = 0; index < 32; ++index) handles.push_back(CreateMemory(Properties()));
  const auto release_every_other = [&](size_t first) {
    for (size_t index = first; index < 32; index += 2) EXPECT_EQ(cuda().cuMemRelease(handles[index]), CUDA_SUCCESS);
  };
  release_every_other(0);
  EXPECT_EQ(cuda().cuMemRelease(CreateMemory(Properties(), 16 * kUnit)), CUDA_SUCCESS);
  release_every_other(1);
}

TEST_F(HardwareAnswers, ABlockedHostFunctionHoldsItsStreamOnly) {
  std::promise<void> open;
  std::future<void> opened = open.get_future();
  const CUstream held = MakeStream();
  const CUstream free = MakeStream();
  const CUhostFn wait = [](void* future) { static_cast<std::future<void>*>(future)->wait(); };
  ASSERT_EQ(cuda().cuLaunchHostFunc(held, wait, &opened), CUDA_SUCCESS);
  ASSERT_EQ(Launch(free, {}), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamSynchronize(free), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamQuery(held), CUDA_ERROR_NOT_READY);
  open.set_value();
  EXPECT_EQ(cuda().cuStreamSynchronize(held), CUDA_SUCCESS);
}

// Loses a device that no other test uses.
class UnmappedUnderWork : public MappedAnswers {
 protected:
  UnmappedUnderWork() : MappedAnswers(3) {}
};

TEST_F(UnmappedUnderWork, UnmapsAtOnceAndLosesTheContextWhenTheWorkRuns) {
  const CUstream stream = MakeStream();
  {
    Gate gate(stream);
    ASSERT_EQ(cuda().cuMemsetD8Async(address_, 1, kUnit, stream), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuMemUnmap(address_, 2 * kUnit), CUDA_SUCCESS) << "it does not wait";
    EXPECT_TRUE(AnyContains(TakeReports(), "memory in use: cuMemUnmap while cuMemsetD8Async"));
  }
  EXPECT_EQ(cuda().cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(AnyContains(TakeReports(), "memory that is not there"));
}

}  // namespace
}  // namespace commpool::internal::testing
