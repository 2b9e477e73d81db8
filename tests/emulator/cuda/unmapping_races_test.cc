// The race checker and memory that is unmapped, moved or freed.
#include <future>
#include <utility>

#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class UnmappingRaces : public MachineTest {
 protected:
  UnmappingRaces() : physical_(PhysicalMemory::Create(driver(), kUnit, Properties()).value()), stream_(MakeStream()) {}

  // Maps the memory at a new address; unmapped with the test.
  struct Place {
    AddressRange range;
    Mapping mapping;
    CUdeviceptr address() const { return range.address(); }
    void Unmap() { mapping = Mapping(); }
  };
  Place MapSomewhere() {
    Place place{AddressRange::Reserve(driver(), kUnit, kUnit).value(), Mapping()};
    place.mapping = Mapping::Map(driver(), place.address(), physical_).value();
    CUmemAccessDesc access = {};
    access.location = Properties().location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EXPECT_EQ(cuda().cuMemSetAccess(place.address(), kUnit, &access, 1), CUDA_SUCCESS);
    return place;
  }

  PhysicalMemory physical_;
  CUstream stream_;
};

// Waits for the stream's work with a host function, which is no synchronisation.
class Ended {
 public:
  Ended(const CudaDriver& cuda, CUstream stream) {
    EXPECT_EQ(cuda.cuLaunchHostFunc(
                  stream, [](void* self) { static_cast<Ended*>(self)->done_.set_value(); }, this),
              CUDA_SUCCESS);
    done_.get_future().wait();
  }

 private:
  std::promise<void> done_;
};

TEST_F(UnmappingRaces, UnmappingBeforeTheHostWaitedIsReportedThoughTheWorkHasRun) {
  Place place = MapSomewhere();
  ASSERT_EQ(Launch(stream_, {{place.address(), kUnit}}), CUDA_SUCCESS);
  const Ended ended(cuda(), stream_);
  place.Unmap();
  const std::vector<std::string> reports = TakeReports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_NE(reports[0].find("unmapped before the host waited: "), std::string::npos) << reports[0];
  EXPECT_NE(reports[0].find("test kernel of stream "), std::string::npos) << reports[0];
  EXPECT_NE(reports[0].find("issued at "), std::string::npos) << reports[0];
}

TEST_F(UnmappingRaces, UnmappingAfterTheHostWaitedIsNot) {
  Place place = MapSomewhere();
  ASSERT_EQ(Launch(stream_, {{place.address(), kUnit}}), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  place.Unmap();
  EXPECT_EQ(TakeReports(), std::vector<std::string>());
}

TEST_F(UnmappingRaces, UnmappingOtherAddressesOfTheMemoryIsNot) {
  Place used = MapSomewhere();
  Place other = MapSomewhere();
  ASSERT_EQ(Launch(stream_, {{used.address(), kUnit}}), CUDA_SUCCESS);
  const Ended ended(cuda(), stream_);
  other.Unmap();
  EXPECT_EQ(TakeReports(), std::vector<std::string>());
  ASSERT_EQ(cuda().cuStreamSynchronize(stream_), CUDA_SUCCESS);
}

TEST_F(UnmappingRaces, PagesKeepTheirHistoryAtOtherAddresses) {
  Place before = MapSomewhere();
  ASSERT_EQ(Launch(stream_, {{before.address(), kUnit}}), CUDA_SUCCESS);
  const Ended ended(cuda(), stream_);
  before.Unmap();
  EXPECT_TRUE(AnyContains(TakeReports(), "unmapped before the host waited"));
  Place after = MapSomewhere();
  ASSERT_EQ(Launch(MakeStream(), {{after.address(), kUnit}}), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_TRUE(AnyContains(TakeReports(), "race: "));
}

TEST_F(UnmappingRaces, TwoAddressesOfOneMemoryAreOneMemory) {
  Place one = MapSomewhere();
  Place two = MapSomewhere();
  ASSERT_EQ(Launch(stream_, {{one.address(), kUnit}}), CUDA_SUCCESS);
  ASSERT_EQ(Launch(MakeStream(), {{two.address() + 100, 1}}), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_TRUE(AnyContains(TakeReports(), "race: "));
}

TEST_F(UnmappingRaces, FreeingMemoryWaitsByItself) {
  CUdeviceptr memory = 0;
  ASSERT_EQ(cuda().cuMemAlloc(&memory, kUnit), CUDA_SUCCESS);
  Place place = MapSomewhere();
  ASSERT_EQ(Launch(stream_, {{memory, kUnit}, {place.address(), kUnit}}), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuMemFree(memory), CUDA_SUCCESS);
  place.Unmap();
  EXPECT_EQ(TakeReports(), std::vector<std::string>()) << "it waited for all that the device had";
}

TEST_F(UnmappingRaces, FreedMemoryHasNoHistory) {
  for (int round = 0; round < 3; ++round) {
    physical_ = PhysicalMemory();
    physical_ = PhysicalMemory::Create(driver(), kUnit, Properties()).value();
    Place place = MapSomewhere();
    const CUstream stream = MakeStream();
    ASSERT_EQ(Launch(stream, {{place.address(), kUnit}}), CUDA_SUCCESS);
    const Ended ended(cuda(), stream);
  }
  EXPECT_FALSE(AnyContains(TakeReports(), "race: ")) << "new memory in the old one's place";
}

}  // namespace
}  // namespace commpool::internal::testing
