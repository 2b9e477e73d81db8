// Scopes for some sizes, and scopes that hand on requests for which their pool has no memory.
#include <string>
#include <vector>

#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class ScopeRules : public PoolTest {
 protected:
  ~ScopeRules() override {
    while (!open_.empty()) EndInnermost();
  }

  // One segment, and no more.
  PoolHandle CreateLimited(const char* name) { return CreateWith({.name = name, .limit_bytes = kLimit}); }
  ScopeHandle Begin(PoolHandle pool, SizeRange sizes, Exhaustion exhaustion = Exhaustion::kError,
                    ScopeFilter filter = ScopeFilter::kThread, StreamKey stream = 0) {
    const std::shared_ptr<Pool> found = runtime().pools().Find(pool).value();
    open_.push_back(runtime().scopes().Begin({found, filter, stream, sizes, exhaustion}).value());
    return open_.back();
  }
  void EndInnermost() {
    EXPECT_TRUE(runtime().scopes().End(open_.back()).ok());
    open_.pop_back();
  }

  // The name of the pool that served an allocation; frees the block.
  std::string ServedBy(uint64_t bytes) {
    const CUdeviceptr address = Counted(runtime().Allocate(0, bytes, stream_).value());
    const std::string name = runtime().addresses().OwnerOf(address).value()->name();
    Free(address);
    return name;
  }
  CUdeviceptr Fill(PoolHandle pool) { return Allocate(pool, kLimit, stream_); }

  static constexpr uint64_t kLimit = 20 * kMiB;
  static constexpr SizeRange kAll = {};
  const TestStream stream_;

 private:
  std::vector<ScopeHandle> open_;
};

TEST_F(ScopeRules, SizesOutsideTheRangeGoToTheNextScopeOut) {
  Begin(Create(Configured("all")), kAll);
  Begin(Create(Configured("middle")), {kKiB, kMiB});
  EXPECT_EQ(ServedBy(kKiB - 1), "all");
  EXPECT_EQ(ServedBy(kKiB), "middle");
  EXPECT_EQ(ServedBy(kMiB), "middle");
  EXPECT_EQ(ServedBy(kMiB + 1), "all");
}

TEST_F(ScopeRules, SizesThatNoScopeTakesGoToTheDefaultPool) {
  Begin(Create(Configured("exact")), {kKiB, kKiB});
  EXPECT_EQ(ServedBy(kKiB), "exact");
  EXPECT_EQ(ServedBy(2 * kKiB), "default");
  EXPECT_EQ(ServedBy(512), "default");
}

// Caches are asked first, so a size range must hold for them too.
TEST_F(ScopeRules, SizesHoldForCachedBlocks) {
  for (int round = 0; round < 3; ++round) EXPECT_EQ(ServedBy(512), "default");
  Begin(Create(Configured("large")), {kMiB, UINT64_MAX});
  for (int round = 0; round < 3; ++round) EXPECT_EQ(ServedBy(512), "default");
  Begin(Create(Configured("small")), {0, kMiB - 1});
  for (int round = 0; round < 3; ++round) EXPECT_EQ(ServedBy(512), "small");
  for (int round = 0; round < 3; ++round) EXPECT_EQ(ServedBy(kMiB), "large");
}

TEST_F(ScopeRules, SizesHoldForScopesOfStreamsAndTheProcess) {
  Begin(Create(Configured("process")), {kKiB, UINT64_MAX}, Exhaustion::kError, ScopeFilter::kProcess);
  Begin(Create(Configured("stream")), {kMiB, UINT64_MAX}, Exhaustion::kError, ScopeFilter::kStream,
        runtime().NameOf(stream_, 0).value().identity);
  EXPECT_EQ(ServedBy(kMiB), "stream");
  EXPECT_EQ(ServedBy(kMiB - 1), "process");
  EXPECT_EQ(ServedBy(kKiB - 1), "default");
}

TEST_F(ScopeRules, ALeastAboveTheMostIsRefused) {
  const std::shared_ptr<Pool> pool = runtime().pools().Find(Create(Configured("none"))).value();
  ExpectFailure(runtime().scopes().Begin({.pool = pool, .sizes = {2, 1}}).status(), StatusCode::kInvalidArgument,
                "2 bytes, is above its most, 1");
  EXPECT_EQ(ServedBy(512), "default") << "nothing began";
}

TEST_F(ScopeRules, AnExhaustedPoolIsAnErrorUnlessItsScopeHandsOn) {
  const PoolHandle pool = CreateLimited("limited");
  const CUdeviceptr block = Fill(pool);
  Begin(pool, kAll);
  EXPECT_EQ(runtime().Allocate(0, kMiB, stream_).status().code(), StatusCode::kOutOfMemory);
  EndInnermost();
  Begin(pool, kAll, Exhaustion::kNextScope);
  EXPECT_EQ(ServedBy(kMiB), "default");
  Free(block);
  EXPECT_EQ(ServedBy(kMiB), "limited") << "it serves again as soon as it can";
}

TEST_F(ScopeRules, ExhaustedPoolsHandOnOutwardsOneAfterTheOther) {
  const PoolHandle outer = CreateLimited("outer");
  const PoolHandle inner = CreateLimited("inner");
  Begin(outer, kAll, Exhaustion::kNextScope);
  Begin(Create(Configured("other sizes")), {1, 1});
  Begin(inner, kAll, Exhaustion::kNextScope);
  EXPECT_EQ(ServedBy(kMiB), "inner");
  Fill(inner);
  EXPECT_EQ(ServedBy(kMiB), "outer");
  EXPECT_EQ(ServedBy(kKiB), "outer") << "a block of a size class, from its pool";
  EXPECT_EQ(ServedBy(kKiB), "outer") << "the same from its cache";
  Fill(outer);
  EXPECT_EQ(ServedBy(kMiB), "default");
}

TEST_F(ScopeRules, ARequestIsHandedOnToTheScopeBegunBeforeWhateverItsFilter) {
  const PoolHandle inner = CreateLimited("inner");
  Begin(Create(Configured("thread")), kAll);
  Begin(Create(Configured("process")), kAll, Exhaustion::kError, ScopeFilter::kProcess);
  Begin(inner, kAll, Exhaustion::kNextScope);
  Fill(inner);
  EXPECT_EQ(ServedBy(kMiB), "process");
}

TEST_F(ScopeRules, TheLastErrorNamesThePoolsThatHandedOn) {
  const PoolHandle outer = CreateLimited("outer");
  const PoolHandle inner = CreateLimited("inner");
  Fill(inner);
  Fill(outer);
  Begin(outer, kAll);
  Begin(inner, kAll, Exhaustion::kNextScope);
  ExpectFailure(runtime().Allocate(0, kMiB, stream_).status(), StatusCode::kOutOfMemory,
                "exhausted before it, by scopes: inner");
}

TEST_F(ScopeRules, OtherErrorsAreNotHandedOn) {
  const PoolHandle pool = Create(Configured("closed"));
  Begin(pool, kAll, Exhaustion::kNextScope);
  EXPECT_EQ(runtime().Allocate(0, 0, stream_).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Get(pool).Close().ok());
  EXPECT_EQ(runtime().Allocate(0, kMiB, stream_).status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace commpool::internal::testing
