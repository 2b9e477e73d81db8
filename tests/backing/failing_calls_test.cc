// A call fails while a backing or a segment is made or freed: the error names the call, nothing stays behind, and the
// next attempt works. NCCL's answers are handled, here of a library that fails as the test says.
#include <nccl.h>

#include "src/library/base/bytes.h"
#include "tests/backing/backing_fixture.h"

namespace commpool::internal::testing {
namespace {

struct Step {
  BackingKind kind;
  Placement placement;
  std::string call;
};

void PrintTo(const Step& step, std::ostream* stream) { *stream << Name(step.kind) << ' ' << step.call; }

auto StepsOf(BackingKind kind, const Placement& placement, const std::vector<std::string>& calls) {
  std::vector<Step> steps;
  for (const std::string& call : calls) steps.push_back({kind, placement, call});
  return ::testing::ValuesIn(steps);
}

class FailingStep : public BackingTest, public ::testing::WithParamInterface<Step> {
 protected:
  explicit FailingStep(CUresult result = CUDA_ERROR_UNKNOWN, StatusCode code = StatusCode::kDriverError)
      : result_(result), code_(code) {
    if (!call().starts_with("nccl")) return;
    result_ = ncclUnhandledCudaError;
    code_ = StatusCode::kCommunicatorError;
  }
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail"); }
  static const std::string& call() { return GetParam().call; }
  static BackingRequest request() {
    return {.kind = GetParam().kind, .placement = GetParam().placement, .user = WorkingUserAllocator()};
  }
  // ncclMemAlloc is called again where the device has enough memory.
  Fault fault() const { return {.call = call().c_str(), .result = result_, .count = call() == "ncclMemAlloc" ? 2 : 1}; }

  int result_;
  StatusCode code_;
};

class FailingMake : public FailingStep {
 protected:
  FailingMake() : FailingStep(CUDA_ERROR_OUT_OF_MEMORY, StatusCode::kOutOfMemory) {}
};

TEST_P(FailingMake, LeavesNothingBehind) {
  std::unique_ptr<Backing> backing = Make(request());
  ASSERT_TRUE(backing->Make({.bytes = 1}).ok());
  const std::vector<std::string> before = EmulatorLeaks();
  {
    InjectedFault injected(fault());
    ExpectFailure(backing->Make({.bytes = 1}).status(), code_, GetParam().kind == BackingKind::kUser ? "" : call());
  }
  EXPECT_EQ(EmulatorLeaks(), before);
  EXPECT_TRUE(backing->Make({.bytes = 1}).ok());
}

const std::vector<std::string> kVmmCalls = {"cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"};

INSTANTIATE_TEST_SUITE_P(Vmm, FailingMake, StepsOf(BackingKind::kVmm, OnDevice(), kVmmCalls));
INSTANTIATE_TEST_SUITE_P(HostNuma, FailingMake, StepsOf(BackingKind::kVmm, OnHost(), kVmmCalls));
INSTANTIATE_TEST_SUITE_P(Cuda, FailingMake, StepsOf(BackingKind::kCuda, OnDevice(), {"cuMemAlloc"}));
INSTANTIATE_TEST_SUITE_P(User, FailingMake, StepsOf(BackingKind::kUser, OnDevice(), {"cuMemAlloc"}));
INSTANTIATE_TEST_SUITE_P(Nccl, FailingMake, StepsOf(BackingKind::kNccl, OnDevice(), {"ncclMemAlloc"}));

class FailingFactory : public FailingStep {};

TEST_P(FailingFactory, LeavesNothingBehind) {
  const std::vector<std::string> before = EmulatorLeaks();
  {
    InjectedFault injected(fault());
    ExpectFailure(MakeBacking(driver(), request()).status(), code_, call());
  }
  EXPECT_EQ(EmulatorLeaks(), before);
  EXPECT_TRUE(MakeBacking(driver(), request()).ok());
}

INSTANTIATE_TEST_SUITE_P(Vmm, FailingFactory,
                         StepsOf(BackingKind::kVmm, OnDevice(),
                                 {"cuDevicePrimaryCtxRetain", "cuMemGetAllocationGranularity", "cuDeviceGetCount"}));
INSTANTIATE_TEST_SUITE_P(Cuda, FailingFactory, StepsOf(BackingKind::kCuda, OnDevice(), {"cuDevicePrimaryCtxRetain"}));
INSTANTIATE_TEST_SUITE_P(User, FailingFactory, StepsOf(BackingKind::kUser, OnDevice(), {"cuDevicePrimaryCtxRetain"}));
INSTANTIATE_TEST_SUITE_P(Nccl, FailingFactory,
                         StepsOf(BackingKind::kNccl, OnDevice(),
                                 {"cuDevicePrimaryCtxRetain", "cuMemGetAllocationGranularity", "ncclMemAlloc"}));

class FailingFree : public FailingStep {};

TEST_P(FailingFree, IsToldAndTriedAgainOnlyWhereTheMemoryStaysMapped) {
  AllowLeak("");  // the driver kept it
  std::unique_ptr<Segment> segment = Make(request())->Make({.bytes = 1}).value();
  InjectedFault injected(fault());
  ExpectFailure(segment->Release(), code_, call());
  const uint64_t calls = CallCount(call().c_str());
  EXPECT_TRUE(segment->Release().ok());
  segment.reset();
  ExpectCalls(call().c_str(), calls, call() == "cuMemUnmap" ? 1 : 0);
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
    EXPECT_EQ(log.find(call()) != std::string::npos, fails) << log;
    EXPECT_EQ(log.empty(), !fails) << log;
  }
}

INSTANTIATE_TEST_SUITE_P(Vmm, FailingFree,
                         StepsOf(BackingKind::kVmm, OnDevice(), {"cuMemUnmap", "cuMemRelease", "cuMemAddressFree"}));
INSTANTIATE_TEST_SUITE_P(Cuda, FailingFree, StepsOf(BackingKind::kCuda, OnDevice(), {"cuMemFree"}));
INSTANTIATE_TEST_SUITE_P(Nccl, FailingFree, StepsOf(BackingKind::kNccl, OnDevice(), {"ncclMemFree"}));

// The answers of the test's functions. Global, because the driver's table has no context.
struct Answer {
  bool fails = false;
  int failures_first = 0;  // so many calls fail, and then none
  const char* last_error_text = "";
  size_t free_bytes = 0;
  bool memory_is_known = true;
} g_answer;

class NcclMemory : public BackingTest {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_NCCL();
    g_answer = {};
    driver_.last_error_text = std::make_shared<LastErrorText>();
    driver_.nccl.ncclGetLastError = [](ncclComm_t) { return g_answer.last_error_text; };
    driver_.nccl.ncclMemAlloc = [](void** pointer, size_t bytes) {
      const bool fails = g_answer.fails || g_answer.failures_first-- > 0;
      return fails ? ncclUnhandledCudaError : SharedDriver()->nccl.ncclMemAlloc(pointer, bytes);
    };
    driver_.nccl.ncclMemFree = [](void* pointer) {
      const ncclResult_t result = SharedDriver()->nccl.ncclMemFree(pointer);
      return g_answer.fails ? ncclUnhandledCudaError : result;
    };
    driver_.cuda.cuMemGetInfo = [](size_t* free_bytes, size_t* total_bytes) {
      *free_bytes = g_answer.free_bytes;
      *total_bytes = kGiB;
      return g_answer.memory_is_known ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    };
    backing_ = MakeBacking(driver_, {.kind = BackingKind::kNccl}).value();
  }
  static void ExpectNoBlame(const Status& failure) {
    EXPECT_FALSE(failure.ok());
    EXPECT_EQ(failure.message().find("mistake"), std::string::npos) << failure.message();
  }
  Status Failure() {
    g_answer.fails = true;
    return backing_->Make({.bytes = 2 * kMiB}).status();
  }

  Driver driver_ = driver();
  std::unique_ptr<Backing> backing_;
};

TEST_F(NcclMemory, HasRunOutWhereTheDeviceHasLessThanWasAskedFor) {
  g_answer.free_bytes = 2 * kMiB - 1;
  EXPECT_EQ(Failure().code(), StatusCode::kOutOfMemory);
  g_answer.free_bytes = 2 * kMiB;
  EXPECT_EQ(Failure().code(), StatusCode::kCommunicatorError) << "there was enough: it is another failure";
  g_answer = {.memory_is_known = false};
  EXPECT_EQ(Failure().code(), StatusCode::kCommunicatorError) << "nobody knows";
}

TEST_F(NcclMemory, IsAskedAgainWhereTheDeviceHasEnoughByNow) {
  g_answer = {.failures_first = 1, .free_bytes = 2 * kMiB};
  EXPECT_TRUE(backing_->Make({.bytes = 2 * kMiB}).ok());
}

TEST_F(NcclMemory, IsNotBlamedForAnEarlierFailureOfTheProgram) {
  g_answer.last_error_text = "the program's own mistake";
  ExpectNoBlame(Failure());

  g_answer = {.last_error_text = ""};
  std::unique_ptr<Segment> segment = backing_->Make({.bytes = 1}).value();
  g_answer = {.fails = true, .last_error_text = "another mistake"};
  ExpectNoBlame(segment->Release());
}

}  // namespace
}  // namespace commpool::internal::testing
