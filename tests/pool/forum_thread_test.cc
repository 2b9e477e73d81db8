// The complaint that began this project: 60 KiB, 70 KiB, 60 MiB, 70 MiB, 60 GiB and 70 GiB, one after the other, in a
// private pool on an 80 GiB device. The last one needs the memory that the earlier ones left in the cache.
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

// The calls that make and release memory, with their sizes, in order.
std::vector<std::string> calls;
std::vector<std::pair<CUmemGenericAllocationHandle, uint64_t>> sizes;

CUresult CreateRecorded(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                        unsigned long long flags) {
  const CUresult result = SharedDriver()->cuda.cuMemCreate(handle, bytes, properties, flags);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) calls.push_back("cuMemCreate " + FormatBytes(bytes) + ": out of memory");
  if (result != CUDA_SUCCESS) return result;  // this machine refuses these properties
  calls.push_back("cuMemCreate " + FormatBytes(bytes));
  sizes.emplace_back(*handle, bytes);
  return CUDA_SUCCESS;
}

CUresult ReleaseRecorded(CUmemGenericAllocationHandle handle) {
  for (auto& [known, bytes] : sizes) {
    if (known != handle || bytes == 0) continue;
    calls.push_back("cuMemRelease " + FormatBytes(bytes));
    bytes = 0;
    break;
  }
  return SharedDriver()->cuda.cuMemRelease(handle);
}

std::shared_ptr<const Driver> RecordedDriver() {
  auto recorded = std::make_shared<Driver>(*SharedDriver());
  recorded->cuda.cuMemCreate = CreateRecorded;
  recorded->cuda.cuMemRelease = ReleaseRecorded;
  return recorded;
}

class ForumThread : public PoolTest {
 protected:
  ForumThread() : PoolTest(RecordedDriver()) {}
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("it needs a device of 80 GiB"); }

  // Like a framework: one allocation and its free inside a scope of the private pool.
  void Use(uint64_t bytes) {
    const CUdeviceptr block = runtime().Allocate(0, bytes, nullptr).value();
    EXPECT_EQ(runtime().addresses().OwnerOf(block).value(), private_);
    Free(block);
  }
  std::vector<std::string> CallsOf(uint64_t bytes) {
    calls.clear();
    const ScopeHandle scope = runtime().scopes().Begin({private_}).value();
    Use(bytes);
    ExpectOk(runtime().scopes().End(scope));
    // As after a training step: cached memory is idle.
    ExpectOk(private_->blocks().WaitForDevice());
    return calls;
  }

  const std::shared_ptr<Pool> private_ = runtime().pools().Find(Create(Configured("private"))).value();
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
  const ScopeHandle scope = runtime().scopes().Begin({private_}).value();
  Use(60 * kGiB);
  EXPECT_EQ(private_->Trim(0).value(), 60 * kGiB);
  EXPECT_EQ(private_->Statistics().reserved_bytes.current, 0u);
  Use(70 * kGiB);
  ExpectOk(runtime().scopes().End(scope));
}

}  // namespace
}  // namespace commpool::internal::testing
