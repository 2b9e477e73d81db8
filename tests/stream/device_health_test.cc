// A device is broken from its first sticky error on; other errors leave it as it was.
#include "src/library/stream/stream_places.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {
namespace {

class Health : public DriverTest {
 protected:
  Status Check(CUresult result, const char* call) { return health_.Check(driver(), result, {.call = call}); }

  DeviceHealth health_;
};

TEST_F(Health, IsGoodAtFirstAndAfterSuccess) {
  EXPECT_TRUE(Check(CUDA_SUCCESS, "cuEventRecord").ok());
  EXPECT_FALSE(health_.broken());
  EXPECT_TRUE(health_.first_error().ok());
}

TEST_F(Health, SurvivesErrorsThatAreNotSticky) {
  for (const CUresult result : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED}) {
    EXPECT_FALSE(Check(result, "cuMemCreate").ok());
  }
  EXPECT_FALSE(health_.broken());
  EXPECT_TRUE(health_.first_error().ok());
}

TEST_F(Health, KeepsTheFirstStickyError) {
  Status first = Check(CUDA_ERROR_ILLEGAL_ADDRESS, "cuEventQuery");
  Status second = Check(CUDA_ERROR_LAUNCH_FAILED, "cuCtxSynchronize");
  EXPECT_TRUE(health_.broken());
  EXPECT_EQ(health_.first_error().message(), first.message());
  EXPECT_NE(first.message(), second.message());
  EXPECT_NE(first.message().find("cuEventQuery"), std::string::npos) << first.message();
}

TEST_F(Health, DoesNotRecover) {
  EXPECT_FALSE(Check(CUDA_ERROR_DEINITIALIZED, "cuEventRecord").ok());
  EXPECT_TRUE(Check(CUDA_SUCCESS, "cuEventRecord").ok());
  EXPECT_TRUE(health_.broken());
}

}  // namespace
}  // namespace commpool::internal::testing
