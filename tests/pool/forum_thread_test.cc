// The complaint that began this project: 60 KiB, 70 KiB, 60 MiB, 70 MiB, 60 GiB and 70 GiB, one after the other, in a
// private pool on an 80 GiB device. The last one needs the memory that the earlier ones left in the cache.
#include <cstdlib>

#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

// The calls that make and release memory, with their sizes, in order.
std::vector<std::string>& Calls() {
  static std::vector<std::string> calls;
  return calls;
}
std::vector<std::pair<CUmemGenericAllocationHandle, uint64_t>>& Sizes() {
  static std::vector<std::pair<CUmemGenericAllocationHandle, uint64_t>> sizes;
  return sizes;
}

CUresult CreateRecorded(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                        unsigned long long flags) {
  const CUresult result = SharedDriver()->cuda.cuMemCreate(handle, bytes, properties, flags);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) Calls().push_back("cuMemCreate " + FormatBytes(bytes) + ": out of memory");
  if (result != CUDA_SUCCESS) return result;  // this machine refuses these properties
  Calls().push_back("cuMemCreate " + FormatBytes(bytes));
  Sizes().emplace_back(*handle, bytes);
  return CUDA_SUCCESS;
}

CUresult ReleaseRecorded(CUmemGenericAllocationHandle handle) {
  for (auto& [known, bytes] : Sizes()) {
    if (known != handle || bytes == 0) continue;
    Calls().push_back("cuMemRelease " + FormatBytes(bytes));
    bytes = 0;
    break;
  }
  return SharedDriver()->cuda.cuMemRelease(handle);
}

class ForumThread : public PoolTest {
 protected:
  static void SetUpTestSuite() { setenv("COMMPOOL_EMULATOR", "devices=1,memory=80GiB", 1); }
  void SetUp() override {
    COMMPOOL_REQUIRE_EMULATOR("it needs a device of 80 GiB");
    EndRuntime();
    auto recorded = std::make_shared<Driver>(driver());
    recorded->cuda.cuMemCreate = CreateRecorded;
    recorded->cuda.cuMemRelease = ReleaseRecorded;
    recording_ = std::make_unique<Runtime>(recorded);
    pool_ = recording_->CreatePool(Configured("private")).value();
    Calls().clear();
    Sizes().clear();
  }
  void TearDown() override {
    if (recording_ != nullptr) {
      EXPECT_TRUE(recording_->DestroyPool(pool_).ok());
    }
  }

  // Like a framework: one allocation and its free inside a scope of the private pool.
  void Use(uint64_t bytes) {
    const ScopeHandle scope = recording_->scopes().Begin({recording_->pools().Find(pool_).value()}).value();
    Result<CUdeviceptr> address = recording_->Allocate(0, bytes, nullptr);
    ASSERT_TRUE(address.ok()) << address.status().message();
    EXPECT_TRUE(recording_->Free(*address).ok());
    EXPECT_TRUE(recording_->scopes().End(scope).ok());
    // As after a training step: cached memory is idle.
    EXPECT_TRUE(recording_->pools().Find(pool_).value()->blocks().WaitForDevice().ok());
  }
  std::vector<std::string> CallsOf(uint64_t bytes) {
    Calls().clear();
    Use(bytes);
    return Calls();
  }

  std::unique_ptr<Runtime> recording_;
  PoolHandle pool_ = 0;
};

using List = std::vector<std::string>;

// A fixed pool replaces idle segments that are too small by a new one.
TEST_F(ForumThread, EndsWithSeventyGibibytesServed) {
  EXPECT_EQ(CallsOf(60 * kKiB), List({"cuMemCreate 2 MiB"}));
  EXPECT_EQ(CallsOf(70 * kKiB), List());
  EXPECT_EQ(CallsOf(60 * kMiB), List({"cuMemRelease 2 MiB", "cuMemCreate 60 MiB"}));
  EXPECT_EQ(CallsOf(70 * kMiB), List({"cuMemRelease 60 MiB", "cuMemCreate 70 MiB"}));
  EXPECT_EQ(CallsOf(60 * kGiB), List({"cuMemRelease 70 MiB", "cuMemCreate 60 GiB"}));
  EXPECT_EQ(CallsOf(70 * kGiB), List({"cuMemRelease 60 GiB", "cuMemCreate 70 GiB"}));
}

TEST_F(ForumThread, EmptiesTheCacheInsideAScope) {
  const std::shared_ptr<Pool> pool = recording_->pools().Find(pool_).value();
  const ScopeHandle scope = recording_->scopes().Begin({pool}).value();
  const CUdeviceptr large = recording_->Allocate(0, 60 * kGiB, nullptr).value();
  ASSERT_TRUE(recording_->Free(large).ok());
  EXPECT_EQ(pool->Trim(0).value(), 60 * kGiB);
  EXPECT_EQ(pool->Statistics().reserved_bytes.current, 0u);
  const CUdeviceptr again = recording_->Allocate(0, 70 * kGiB, nullptr).value();
  ASSERT_TRUE(recording_->Free(again).ok());
  EXPECT_TRUE(recording_->scopes().End(scope).ok());
}

}  // namespace
}  // namespace commpool::internal::testing
