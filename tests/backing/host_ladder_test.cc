// Memory on a NUMA node of the host: the best that the driver gives, and the reason why it is not better.
#include <cstring>

#include "tests/backing/backing_fixture.h"

namespace commpool::internal::testing {
namespace {

class HostLadder : public BackingTest {
 protected:
  static void SetUpTestSuite() { ASSERT_EQ(EmulatorSetting("fabric"), "yes") << "BUILD sets it"; }

  // The backing that is made where the first `count` calls of cuMemCreate are refused.
  std::unique_ptr<Backing> AfterRefusals(int count, CUresult refusal = CUDA_ERROR_NOT_PERMITTED) {
    InjectedFault injected({.call = "cuMemCreate", .result = refusal, .count = count});
    return AfterNoRefusal();
  }
  std::unique_ptr<Backing> AfterNoRefusal() { return Make({.kind = BackingKind::kVmm, .placement = OnHost(1)}); }
};

void ExpectFacts(const Backing& backing, const std::string& what, const std::vector<std::string>& why) {
  const MemoryFacts facts = backing.Facts();
  const std::string witness = what.starts_with("bound") ? ", node not proven" : ", node as its handles say";
  EXPECT_EQ(facts.what, "host NUMA node 1, " + what + (what == "nothing made so far" ? "" : witness));
  EXPECT_EQ(facts.why.empty(), why.empty()) << facts.why;
  for (const std::string& part : why) EXPECT_NE(facts.why.find(part), std::string::npos) << facts.why;
}

TEST_F(HostLadder, BeginsWithFabricHandles) { ExpectFacts(*AfterNoRefusal(), "fabric handles", {}); }

TEST_F(HostLadder, StepsDownToDescriptorsToNoHandlesAndToBoundMemory) {
  for (const CUresult refusal : {CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED}) {
    ExpectFacts(*AfterRefusals(1, refusal), "file descriptor handles", {"fabric handles: cuMemCreate"});
    ExpectFacts(*AfterRefusals(2, refusal), "no handles",
                {"fabric handles: cuMemCreate", "file descriptor handles: cuMemCreate"});
    ExpectFacts(*AfterRefusals(3, refusal), "bound and registered, no handle",
                {"fabric handles: cuMemCreate", "file descriptor handles: cuMemCreate", "no handles: cuMemCreate"});
  }
}

TEST_F(HostLadder, StepsDownWhereTheCpuGetsNoAccess) {
  InjectedFault injected({.call = "cuMemSetAccess", .result = CUDA_ERROR_NOT_SUPPORTED});
  ExpectFacts(*AfterNoRefusal(), "bound and registered, no handle", {"no handles: cuMemSetAccess"});
}

TEST_F(HostLadder, IsAtItsEndWhereTheDriverSaysThatItMakesNone) {
  const Driver driver = DriverWhere(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
  const uint64_t before = CallCount("cuMemCreate");
  const auto backing = MakeBacking(driver, {.kind = BackingKind::kVmm, .placement = OnHost(1)}).value();
  ExpectFacts(*backing, "bound and registered, no handle", {"attribute 141"});
  EXPECT_EQ(CallCount("cuMemCreate"), before);
}

TEST_F(HostLadder, TakesNoStepForWantOfMemory) {
  ExpectFacts(*AfterRefusals(1, CUDA_ERROR_OUT_OF_MEMORY), "nothing made so far", {});
}

TEST_F(HostLadder, NeedsALastStep) {
  InjectedFault registering({.call = "cuMemHostRegister", .result = CUDA_ERROR_NOT_SUPPORTED});
  InjectedFault making({.call = "cuMemCreate", .result = CUDA_ERROR_NOT_PERMITTED, .count = 3});
  const Status status = MakeBacking(driver(), {.kind = BackingKind::kVmm, .placement = OnHost(1)}).status();
  ExpectFailure(status, StatusCode::kNotSupported, "cuMemHostRegister of 2 MiB on NUMA node 1");
  ExpectMessage(status, "before that: fabric handles");
}

TEST_F(HostLadder, HasNoNodeThatIsNotThere) {
  const Driver without = DriverWhere(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
  for (const Driver* const each : {&driver(), &without}) {
    ExpectFailure(MakeBacking(*each, {.kind = BackingKind::kVmm, .placement = OnHost(63)}).status(),
                  StatusCode::kInvalidArgument, "no host NUMA node 63");
  }
}

TEST_F(HostLadder, BoundMemoryIsReadAndWrittenByTheCpuAndHasNoHandle) {
  const std::unique_ptr<Backing> backing = AfterRefusals(3);
  const std::unique_ptr<Segment> segment = backing->Make({.bytes = 1}).value();
  std::memset(reinterpret_cast<void*>(segment->address()), 0x3c, segment->bytes());
  EXPECT_EQ(Read(0, segment->address(), segment->bytes()), std::vector<uint8_t>(segment->bytes(), 0x3c));
  EXPECT_EQ(segment->Descriptor().value(), -1);
  EXPECT_FALSE(segment->FabricHandle());
  for (const Status& status : {backing->CanShare(), backing->CanRegisterLocal(), backing->CanRegisterWindow()}) {
    EXPECT_EQ(status.code(), StatusCode::kNotSupported) << status.message();
  }
}

TEST_F(HostLadder, BoundMemoryThatStaysRegisteredKeepsItsPages) {
  AllowLeak("registered host memory");
  const std::unique_ptr<Segment> segment = AfterRefusals(3)->Make({.bytes = 1}).value();
  InjectedFault injected({.call = "cuMemHostUnregister", .result = CUDA_ERROR_UNKNOWN});
  EXPECT_EQ(segment->Release().code(), StatusCode::kDriverError);
  EXPECT_EQ(Fill(0, segment->address(), 1, segment->bytes()), CUDA_SUCCESS);
}

TEST_F(HostLadder, RanksSettleOnTheLeastReachOfAny) {
  const std::unique_ptr<Backing> backing = AfterNoRefusal();
  EXPECT_EQ(backing->reach(), Reach::kHosts);
  backing->SettleOn(Reach::kProcesses);
  const uint64_t before = CallCount("cuMemCreate");
  ASSERT_TRUE(backing->Make({.bytes = 1}).ok());
  ExpectFacts(*backing, "file descriptor handles", {});
  InjectedFault injected({.call = "cuMemCreate", .result = CUDA_ERROR_NOT_PERMITTED});
  EXPECT_EQ(backing->Make({.bytes = 1}).status().code(), StatusCode::kNotSupported) << "no rank steps down alone";
  EXPECT_EQ(CallCount("cuMemCreate"), before + 2);
}

}  // namespace
}  // namespace commpool::internal::testing
