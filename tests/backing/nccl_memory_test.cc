// The nccl backing handles NCCL's answers, here of a library that fails as the test says.
#include <nccl.h>

#include "src/library/base/bytes.h"
#include "tests/backing/backing_fixture.h"

namespace commpool::internal::testing {
namespace {

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
  const Status made = Failure();
  EXPECT_FALSE(made.ok());
  EXPECT_EQ(made.message().find("mistake"), std::string::npos) << made.message();

  g_answer = {.last_error_text = ""};
  std::unique_ptr<Segment> segment = backing_->Make({.bytes = 1}).value();
  g_answer = {.fails = true, .last_error_text = "another mistake"};
  const Status freed = segment->Release();
  EXPECT_FALSE(freed.ok());
  EXPECT_EQ(freed.message().find("mistake"), std::string::npos) << freed.message();
}

}  // namespace
}  // namespace commpool::internal::testing
