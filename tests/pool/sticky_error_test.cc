// After an error that lost the context every call returns the first error and calls the driver no more.
#include <string>

#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class StickyError : public PoolTest {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
    AllowLeak("");  // the memory stays until the process ends
    address_ = runtime().AllocateFrom(pool_, kMiB, nullptr).value();
    live_ = runtime().AllocateFrom(pool_, kMiB, nullptr).value();
    ASSERT_TRUE(runtime().RecordStream(address_, stream_.get()).ok());
    InjectedFault fault({.call = "cuEventRecord", .result = CUDA_ERROR_ILLEGAL_ADDRESS});
    first_ = runtime().Free(address_);
    ASSERT_EQ(first_.code(), StatusCode::kDriverError) << first_.message();
  }
  void TearDown() override {
    EXPECT_TRUE(runtime().ReleaseStream(stream_.get()).ok());
    EndRuntime();
  }

  const TestStream stream_;
  const PoolHandle pool_ = Create(Configured("lost"));
  CUdeviceptr address_ = 0;
  CUdeviceptr live_ = 0;
  Status first_;
};

TEST_F(StickyError, IsReturnedByEveryLaterCall) {
  const std::string first = first_.message();
  EXPECT_NE(first.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos) << first;
  const uint64_t calls = CallCount("*");
  EXPECT_EQ(runtime().AllocateFrom(pool_, kMiB, nullptr).status().message(), first);
  EXPECT_EQ(Get(pool_).mode().Reserve(kMiB).message(), first);
  EXPECT_EQ(Get(pool_).Close().message(), first);
  EXPECT_EQ(CallCount("*"), calls);
}

TEST_F(StickyError, OfADeviceConcernsItsOtherPools) {
  const PoolHandle other = Create(Configured("other"));
  EXPECT_EQ(runtime().AllocateFrom(other, kMiB, nullptr).status().message(), first_.message());
}

TEST_F(StickyError, LeavesOtherDevicesAlone) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const PoolHandle far = Create(Configured("far", 1));
  Result<CUdeviceptr> served = runtime().AllocateFrom(far, kMiB, nullptr);
  ASSERT_TRUE(served.ok()) << served.status().message();
  EXPECT_TRUE(runtime().Free(*served).ok());
  EXPECT_TRUE(Get(far).Trim(0).ok());
}

TEST_F(StickyError, LetsBlocksBeFreedWithoutADriverCall) {
  const uint64_t calls = CallCount("*");
  EXPECT_TRUE(runtime().Free(live_).ok());
  EXPECT_EQ(CallCount("*"), calls);
}

TEST_F(StickyError, LetsDestructorsCallNothing) {
  const uint64_t calls = CallCount("*");
  EXPECT_TRUE(runtime().Free(live_).ok());
  EXPECT_TRUE(runtime().DestroyPool(pool_).ok());
  EXPECT_EQ(CallCount("*"), calls);
}

// A process that ends may free blocks of destroyed pools after the driver has shut down.
class ShutDownDriver : public PoolTest {};

TEST_F(ShutDownDriver, IsLeftAloneWithoutAWordWhereTheLastBlocksAreFreed) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  AllowLeak("");
  const PoolHandle pool = Create(Configured("orphan"));
  const CUdeviceptr first = runtime().AllocateFrom(pool, kMiB, nullptr).value();
  const CUdeviceptr second = runtime().AllocateFrom(pool, 64 * kMiB, nullptr).value();
  EXPECT_TRUE(runtime().DestroyPool(pool).ok());
  const InjectedFault fault({.call = "cuStreamQuery", .result = CUDA_ERROR_DEINITIALIZED});
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(runtime().Free(first).ok());
  const uint64_t calls = CallCount("*");
  EXPECT_TRUE(runtime().Free(second).ok());
  EXPECT_EQ(CallCount("*"), calls);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EndRuntime();
}

}  // namespace
}  // namespace commpool::internal::testing
