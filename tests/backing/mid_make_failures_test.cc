// A driver call fails while a backing or a segment is made: the error names the call, nothing stays behind, and the
// next attempt works.
#include <nccl.h>

#include "tests/backing/backing_fixture.h"

namespace commpool::internal::testing {
namespace {

struct Step {
  BackingKind kind;
  Placement placement;
  const char* call;
  int result;
  StatusCode code;
};

void PrintTo(const Step& step, std::ostream* stream) { *stream << Name(step.kind) << ' ' << step.call; }

class FailingStep : public BackingTest, public ::testing::WithParamInterface<Step> {
 protected:
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail"); }
  BackingRequest request() const {
    return {.kind = GetParam().kind, .placement = GetParam().placement, .user = WorkingUserAllocator()};
  }
  // ncclMemAlloc is called again where the device has enough memory.
  Fault fault() const {
    const bool twice = GetParam().call == std::string("ncclMemAlloc");
    return {.call = GetParam().call, .result = GetParam().result, .count = twice ? 2 : 1};
  }
};

class FailingMake : public FailingStep {};

TEST_P(FailingMake, LeavesNothingBehind) {
  std::unique_ptr<Backing> backing = Make(request());
  ASSERT_TRUE(backing->Make({.bytes = 1}).ok());
  const std::vector<std::string> before = EmulatorLeaks();
  {
    InjectedFault injected(fault());
    Status status = backing->Make({.bytes = 1}).status();
    EXPECT_EQ(status.code(), GetParam().code) << status.message();
    if (GetParam().kind != BackingKind::kUser) {
      EXPECT_NE(status.message().find(GetParam().call), std::string::npos) << status.message();
    }
  }
  EXPECT_EQ(EmulatorLeaks(), before);
  EXPECT_TRUE(backing->Make({.bytes = 1}).ok());
}

constexpr int kNoMemory = CUDA_ERROR_OUT_OF_MEMORY;

INSTANTIATE_TEST_SUITE_P(
    Vmm, FailingMake,
    ::testing::Values(Step{BackingKind::kVmm, OnDevice(), "cuMemCreate", kNoMemory, StatusCode::kOutOfMemory},
                      Step{BackingKind::kVmm, OnDevice(), "cuMemAddressReserve", kNoMemory, StatusCode::kOutOfMemory},
                      Step{BackingKind::kVmm, OnDevice(), "cuMemMap", kNoMemory, StatusCode::kOutOfMemory},
                      Step{BackingKind::kVmm, OnDevice(), "cuMemSetAccess", kNoMemory, StatusCode::kOutOfMemory}));

INSTANTIATE_TEST_SUITE_P(
    HostNuma, FailingMake,
    ::testing::Values(Step{BackingKind::kVmm, OnHost(), "cuMemCreate", kNoMemory, StatusCode::kOutOfMemory},
                      Step{BackingKind::kVmm, OnHost(), "cuMemAddressReserve", kNoMemory, StatusCode::kOutOfMemory},
                      Step{BackingKind::kVmm, OnHost(), "cuMemMap", kNoMemory, StatusCode::kOutOfMemory},
                      Step{BackingKind::kVmm, OnHost(), "cuMemSetAccess", kNoMemory, StatusCode::kOutOfMemory}));

INSTANTIATE_TEST_SUITE_P(
    Others, FailingMake,
    ::testing::Values(Step{BackingKind::kCuda, OnDevice(), "cuMemAlloc", kNoMemory, StatusCode::kOutOfMemory},
                      Step{BackingKind::kUser, OnDevice(), "cuMemAlloc", kNoMemory, StatusCode::kOutOfMemory},
                      Step{BackingKind::kNccl, OnDevice(), "ncclMemAlloc", ncclUnhandledCudaError,
                           StatusCode::kCommunicatorError}));

class FailingFactory : public FailingStep {};

TEST_P(FailingFactory, LeavesNothingBehind) {
  const std::vector<std::string> before = EmulatorLeaks();
  {
    InjectedFault injected(fault());
    Status status = MakeBacking(driver(), request()).status();
    EXPECT_EQ(status.code(), GetParam().code) << status.message();
    EXPECT_NE(status.message().find(GetParam().call), std::string::npos) << status.message();
  }
  EXPECT_EQ(EmulatorLeaks(), before);
  EXPECT_TRUE(MakeBacking(driver(), request()).ok());
}

constexpr int kFailure = CUDA_ERROR_UNKNOWN;
constexpr StatusCode kDriverError = StatusCode::kDriverError;

INSTANTIATE_TEST_SUITE_P(
    All, FailingFactory,
    ::testing::Values(Step{BackingKind::kVmm, OnDevice(), "cuDevicePrimaryCtxRetain", kFailure, kDriverError},
                      Step{BackingKind::kVmm, OnDevice(), "cuMemGetAllocationGranularity", kFailure, kDriverError},
                      Step{BackingKind::kVmm, OnDevice(), "cuDeviceGetCount", kFailure, kDriverError},
                      Step{BackingKind::kCuda, OnDevice(), "cuDevicePrimaryCtxRetain", kFailure, kDriverError},
                      Step{BackingKind::kUser, OnDevice(), "cuDevicePrimaryCtxRetain", kFailure, kDriverError},
                      Step{BackingKind::kNccl, OnDevice(), "cuDevicePrimaryCtxRetain", kFailure, kDriverError},
                      Step{BackingKind::kNccl, OnDevice(), "cuMemGetAllocationGranularity", kFailure, kDriverError},
                      Step{BackingKind::kNccl, OnDevice(), "ncclMemAlloc", ncclUnhandledCudaError,
                           StatusCode::kCommunicatorError}));

class FailingFree : public FailingStep {};

TEST_P(FailingFree, IsToldAndTriedAgainOnlyWhereTheMemoryStaysMapped) {
  AllowLeak("");  // the driver kept it
  std::unique_ptr<Segment> segment = Make(request())->Make({.bytes = 1}).value();
  InjectedFault injected(fault());
  Status status = segment->Release();
  EXPECT_EQ(status.code(), GetParam().code) << status.message();
  EXPECT_NE(status.message().find(GetParam().call), std::string::npos) << status.message();
  const uint64_t calls = CallCount(GetParam().call);
  EXPECT_TRUE(segment->Release().ok());
  segment.reset();
  const bool mapped = GetParam().call == std::string("cuMemUnmap");
  EXPECT_EQ(CallCount(GetParam().call), calls + (mapped ? 1 : 0));
}

TEST_P(FailingFree, IsLoggedWhereNoCallReturnsIt) {
  AllowLeak("");  // the driver kept it
  for (const bool fails : {false, true}) {
    std::unique_ptr<Segment> segment = Make(request())->Make({.bytes = 1}).value();
    ::testing::internal::CaptureStderr();
    if (fails) {
      InjectedFault injected(fault());
      segment.reset();
    }
    segment.reset();
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(log.find(GetParam().call) != std::string::npos, fails) << log;
    EXPECT_EQ(log.empty(), !fails) << log;
  }
}

INSTANTIATE_TEST_SUITE_P(All, FailingFree,
                         ::testing::Values(Step{BackingKind::kVmm, OnDevice(), "cuMemUnmap", kFailure, kDriverError},
                                           Step{BackingKind::kVmm, OnDevice(), "cuMemRelease", kFailure, kDriverError},
                                           Step{BackingKind::kVmm, OnDevice(), "cuMemAddressFree", kFailure,
                                                kDriverError},
                                           Step{BackingKind::kCuda, OnDevice(), "cuMemFree", kFailure, kDriverError},
                                           Step{BackingKind::kNccl, OnDevice(), "ncclMemFree", ncclUnhandledCudaError,
                                                StatusCode::kCommunicatorError}));

}  // namespace
}  // namespace commpool::internal::testing
