// NVLink multicast can serve a range, or not for one of these reasons.
#include "src/library/pool/nvls_eligibility.h"

#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class Nvls : public SymmetricTest {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_EMULATOR("drivers and machines that lack something");
    COMMPOOL_REQUIRE_DEVICES(4);
    SymmetricTest::SetUp();
  }

  // The answer for rank 0's communicator or another one, with a driver that may lack something.
  Result<std::string> WhyNot(CUdeviceptr address, uint64_t bytes, const Driver& driver, ncclComm_t communicator) {
    return WhyNoNvls(driver, runtime().addresses(), runtime().windows(), {address, bytes, communicator});
  }
  Result<std::string> WhyNot(CUdeviceptr address, uint64_t bytes, const Driver& driver = *SharedDriver()) {
    return WhyNot(address, bytes, driver, group()[0].communicator);
  }
  void ExpectReason(const Result<std::string>& reason, const char* fragment) {
    ASSERT_TRUE(reason.ok()) << reason.status().message();
    EXPECT_NE(reason->find(fragment), std::string::npos) << *reason;
  }
  // A symmetric pool with one block on each rank.
  CUdeviceptr MakeBlocks(uint64_t bytes) {
    CreateAndReserve(bytes);
    blocks_ = Allocate(bytes);
    return blocks_.front();
  }
  void TearDown() override {
    if (!blocks_.empty()) Free(blocks_);
    SymmetricTest::TearDown();
  }

 private:
  std::vector<CUdeviceptr> blocks_;
};

TEST_F(Nvls, ServesAWindowOfASymmetricPool) {
  const CUdeviceptr block = MakeBlocks(4 * kMiB);
  EXPECT_EQ(WhyNot(block, 4 * kMiB).value(), "");
  EXPECT_EQ(WhyNot(block + 512, 1).value(), "") << "the segment counts, not the tensor";
}

TEST_F(Nvls, AsksAboutMemoryOfAPool) {
  const CUdeviceptr block = MakeBlocks(2 * kMiB);
  EXPECT_EQ(WhyNot(block, 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(WhyNot(4096, 1).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(WhyNot(block, 1, driver(), nullptr).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(Nvls, NeedsThreeRanks) {
  const CUdeviceptr block = MakeBlocks(2 * kMiB);
  ExpectReason(WhyNot(block, 1, driver(), Another(last() - 1).back()), "the communicator has 2 ranks");
}

TEST_F(Nvls, NeedsADeviceWithMulticast) {
  const CUdeviceptr block = MakeBlocks(2 * kMiB);
  Driver without = driver();
  without.cuda.cuDeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) {
    *value = 0;
    return CUDA_SUCCESS;
  };
  ExpectReason(WhyNot(block, 1, without), "device 0 has no multicast");
}

TEST_F(Nvls, NeedsASymmetricPool) {
  const std::shared_ptr<Pool> fixed = MakeFixed();
  const CUdeviceptr block = runtime().AllocateFrom(fixed->handle(), 2 * kMiB, group()[0].stream).value();
  ExpectReason(WhyNot(block, 1), "pool fixed is not symmetric");
  ExpectOk({runtime().Free(block), runtime().DestroyPool(fixed->handle())});
}

TEST_F(Nvls, NeedsARangeInsideOneSegment) {
  const CUdeviceptr block = MakeBlocks(2 * kMiB);
  ExpectReason(WhyNot(block, 2 * kMiB + 1), "leaves its segment");
  ExpectReason(WhyNot(block, UINT64_MAX), "leaves its segment");
}

TEST_F(Nvls, NeedsAWindowOnTheCommunicator) {
  const CUdeviceptr block = MakeBlocks(2 * kMiB);
  ExpectOk(Deregister(Homes()));
  ExpectReason(WhyNot(block, 1), "not registered with this communicator");
}

template <CUmemLocationType location>
CUresult WithoutHandleTypes(CUmemAllocationProp* properties, CUmemGenericAllocationHandle) {
  *properties = {};
  properties->location.type = location;
  return CUDA_SUCCESS;
}

TEST_F(Nvls, NeedsAHandleThatOtherProcessesImport) {
  const CUdeviceptr block = MakeBlocks(2 * kMiB);
  Driver other = driver();
  other.cuda.cuMemGetAllocationPropertiesFromHandle = WithoutHandleTypes<CU_MEM_LOCATION_TYPE_DEVICE>;
  ExpectReason(WhyNot(block, 1, other), "without a handle type");
  other.cuda.cuMemGetAllocationPropertiesFromHandle = WithoutHandleTypes<CU_MEM_LOCATION_TYPE_HOST_NUMA>;
  ExpectReason(WhyNot(block, 1, other), "host memory");
  other.cuda.cuMemRetainAllocationHandle = [](auto...) { return CUDA_ERROR_INVALID_VALUE; };
  ExpectReason(WhyNot(block, 1, other), "no handle that NCCL could bind");
}

CUresult SixteenMiB(size_t* granularity, const CUmulticastObjectProp*, CUmulticastGranularity_flags) {
  *granularity = 16 * kMiB;
  return CUDA_SUCCESS;
}

TEST_F(Nvls, NeedsMulticastsGranularity) {
  const CUdeviceptr block = MakeBlocks(2 * kMiB);
  Driver coarse = driver();
  coarse.cuda.cuMulticastGetGranularity = SixteenMiB;
  ExpectReason(WhyNot(block, 1, coarse), "the multicast granularity, 16 MiB");
  coarse.cuda.cuMulticastGetGranularity = [](auto...) { return CUDA_ERROR_NOT_SUPPORTED; };
  ExpectReason(WhyNot(block, 1, coarse), "names no multicast granularity for 4 devices");
}

TEST_F(Nvls, AsksForTheGranularityOfThisSegmentOnThisManyDevices) {
  const CUdeviceptr block = MakeBlocks(6 * kMiB);
  static CUmulticastObjectProp asked;
  Driver listening = driver();
  listening.cuda.cuMulticastGetGranularity = [](size_t* granularity, const CUmulticastObjectProp* properties,
                                                CUmulticastGranularity_flags) {
    asked = *properties;
    *granularity = 2 * kMiB;
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(WhyNot(block, 1, listening).value(), "");
  EXPECT_EQ(asked.numDevices, 4u);
  EXPECT_EQ(asked.size, 6 * kMiB);
  EXPECT_EQ(asked.handleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

// A symmetric pool asks for the granularity itself.
TEST_F(Nvls, ServesSegmentsThatWereMadeForAnyGranularity) {
  auto coarse = std::make_shared<Driver>(driver());
  coarse->cuda.cuMulticastGetGranularity = SixteenMiB;
  Runtime other(coarse);
  ExpectOk(Run([&](Rank& rank) -> Status {
    Pool& pool = *other.pools().Find(other.CreatePool(Configured(rank)).value()).value();
    ExpectOk({pool.mode().Reserve(2 * kMiB)});
    const CUdeviceptr block = pool.Allocate(2 * kMiB, KeyOfStream(rank.stream, rank.number)).value();
    EXPECT_EQ(WhyNoNvls(*coarse, other.addresses(), other.windows(), {block, 16 * kMiB, rank.communicator}).value(),
              "");
    ExpectOk({pool.Free(block)});
    return pool.Close();
  }));
}

// In a process with NCCL_NVLS_ENABLE=0.
class NvlsSwitchedOff : public Nvls {};

TEST_F(NvlsSwitchedOff, IsTheFirstReason) {
  ExpectReason(WhyNot(MakeBlocks(2 * kMiB), 2 * kMiB), "NCCL_NVLS_ENABLE=0");
}

}  // namespace
}  // namespace commpool::internal::testing
