// A device is out of memory: the pool asks other allocators of the process, and names them where they cannot help. Each
// emulated device has 64 MiB.
#include <cstdlib>

#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

// An allocator beside the pools, which keeps memory of device 0 until somebody asks for it.
class Framework {
 public:
  explicit Framework(uint64_t bytes) : bytes_(bytes) {
    EXPECT_EQ(SharedDriver()->cuda.cuMemAlloc(&address_, bytes), CUDA_SUCCESS);
  }
  ~Framework() { GiveBack(); }
  Framework(const Framework&) = delete;
  Framework& operator=(const Framework&) = delete;

  commpool_holder_options Options() {
    commpool_holder_options options = {sizeof(options), "framework", nullptr, nullptr, this};
    options.cached_bytes = [](int, void* context) { return static_cast<Framework*>(context)->bytes_; };
    options.release = [](int, uint64_t, void* context) {
      auto* const framework = static_cast<Framework*>(context);
      ++framework->times_asked_;
      return framework->GiveBack();
    };
    return options;
  }
  int times_asked() const { return times_asked_; }

 private:
  uint64_t GiveBack() {
    if (bytes_ == 0) return 0;
    EXPECT_EQ(SharedDriver()->cuda.cuMemFree(address_), CUDA_SUCCESS);
    return std::exchange(bytes_, 0);
  }

  CUdeviceptr address_ = 0;
  uint64_t bytes_ = 0;
  int times_asked_ = 0;
};

class HolderSearch : public PoolTest {
 protected:
  static void SetUpTestSuite() { setenv("COMMPOOL_EMULATOR", "devices=2,memory=64MiB", 1); }
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("it fills a small machine"); }

  Result<CUdeviceptr> Allocate(PoolHandle pool, uint64_t bytes) { return runtime().AllocateFrom(pool, bytes, nullptr); }
};

TEST_F(HolderSearch, MemoryOfAHolderServesTheRequest) {
  Framework framework(40 * kMiB);
  runtime().holders().Add(framework.Options());
  const PoolHandle pool = Create(Configured("needy"));
  Result<CUdeviceptr> served = Allocate(pool, 50 * kMiB);
  ASSERT_TRUE(served.ok()) << served.status().message();
  EXPECT_EQ(framework.times_asked(), 1);
  EXPECT_TRUE(runtime().Free(*served).ok());
}

TEST_F(HolderSearch, MemoryOfAHolderMakesRoomForAReserve) {
  Framework framework(40 * kMiB);
  runtime().holders().Add(framework.Options());
  ExpectOk(Get(Create(Configured("needy"))).mode().Reserve(50 * kMiB));
}

TEST_F(HolderSearch, AHolderIsLeftAloneWhileThereIsMemory) {
  Framework framework(20 * kMiB);
  runtime().holders().Add(framework.Options());
  Result<CUdeviceptr> served = Allocate(Create(Configured("content")), 20 * kMiB);
  ASSERT_TRUE(served.ok()) << served.status().message();
  EXPECT_EQ(framework.times_asked(), 0);
  EXPECT_TRUE(runtime().Free(*served).ok());
}

TEST_F(HolderSearch, OtherPoolsFreeMemoryComesBeforeAHolders) {
  Framework framework(10 * kMiB);
  runtime().holders().Add(framework.Options());
  const PoolHandle idle = Create(Configured("idle"));
  ASSERT_TRUE(Get(idle).mode().Reserve(40 * kMiB).ok());
  Result<CUdeviceptr> served = Allocate(Create(Configured("needy")), 50 * kMiB);
  ASSERT_TRUE(served.ok()) << served.status().message();
  EXPECT_EQ(CountersOf(idle).reserved_bytes.current, 0u);
  EXPECT_EQ(framework.times_asked(), 0);
  EXPECT_TRUE(runtime().Free(*served).ok());
}

TEST_F(HolderSearch, APoolsOwnLimitIsNoReasonToAsk) {
  Framework framework(10 * kMiB);
  runtime().holders().Add(framework.Options());
  PoolConfiguration configuration = Configured("limited");
  configuration.limit_bytes = 4 * kMiB;
  EXPECT_EQ(Allocate(Create(configuration), 8 * kMiB).status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(framework.times_asked(), 0);
}

TEST_F(HolderSearch, TheErrorNamesWhoHoldsWhat) {
  commpool_holder_options options = {sizeof(options), "framework", nullptr, nullptr, nullptr};
  options.cached_bytes = [](int device, void*) { return device == 0 ? 7 * kMiB : 0; };
  runtime().holders().Add(options);
  const std::string message = Allocate(Create(Configured("needy")), 100 * kMiB).status().message();
  const size_t line = message.find("\n  framework ");
  ASSERT_NE(line, std::string::npos) << message;
  EXPECT_NE(message.find("7 MiB", line), std::string::npos) << message;
}

TEST_F(HolderSearch, AHolderThatGivesNothingIsNotAskedForEver) {
  int times_asked = 0;
  commpool_holder_options options = {sizeof(options), "gives nothing", nullptr, nullptr, &times_asked};
  options.release = [](int, uint64_t bytes, void* context) {
    ++*static_cast<int*>(context);
    return bytes;
  };
  runtime().holders().Add(options);
  const PoolHandle pool = Create(Configured("needy"));
  const CUdeviceptr half = Allocate(pool, 32 * kMiB).value();
  EXPECT_EQ(Allocate(pool, 40 * kMiB).status().code(), StatusCode::kOutOfMemory);
  EXPECT_GE(times_asked, 1);
  EXPECT_LE(times_asked, 10);
  EXPECT_EQ(Get(pool).mode().Reserve(40 * kMiB).code(), StatusCode::kOutOfMemory);
  EXPECT_TRUE(runtime().Free(half).ok());
}

}  // namespace
}  // namespace commpool::internal::testing
