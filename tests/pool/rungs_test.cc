// The steps of an allocation (src/library/README.md): which objects it asks, and how often. The linker redirects the
// library's calls to functions here that count them (tests/pool/BUILD).
#include "src/library/engine/caching_engine.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {

struct Asked {
  int scopes = 0;
  int caches = 0;
  int pool = 0;
  int engine = 0;
  int locks = 0;
};
thread_local Asked asked;

#define COMMPOOL_ROUTE "_ZNK8commpool8internal10ScopeTable5RouteERKNS0_13RoutedRequestERKNS0_10ScopePlaceE"
std::optional<CaughtBy> Route(const ScopeTable*, const RoutedRequest&, const ScopePlace&) asm("__real_" COMMPOOL_ROUTE);
std::optional<CaughtBy> CountedRoute(const ScopeTable*, const RoutedRequest&,
                                     const ScopePlace&) asm("__wrap_" COMMPOOL_ROUTE);
std::optional<CaughtBy> CountedRoute(const ScopeTable* table, const RoutedRequest& request, const ScopePlace& inner) {
  ++asked.scopes;
  return Route(table, request, inner);
}

#define COMMPOOL_TAKE                                                     \
  "_ZNK8commpool8internal12ThreadCaches7TakeForERNS0_4SlotERKNSt7__cxx11" \
  "12basic_stringIcSt11char_traitsIcESaIcEEEmm"
CUdeviceptr Take(const ThreadCaches*, Slot&, const std::string&, uint64_t, StreamKey) asm("__real_" COMMPOOL_TAKE);
CUdeviceptr CountedTake(const ThreadCaches*, Slot&, const std::string&, uint64_t,
                        StreamKey) asm("__wrap_" COMMPOOL_TAKE);
CUdeviceptr CountedTake(const ThreadCaches* caches, Slot& slot, const std::string& name, uint64_t bytes,
                        StreamKey stream) {
  ++asked.caches;
  return Take(caches, slot, name, bytes, stream);
}

#define COMMPOOL_POOL "_ZN8commpool8internal4Pool8AllocateEmm"
Result<CUdeviceptr> AskPool(Pool*, uint64_t, StreamKey) asm("__real_" COMMPOOL_POOL);
Result<CUdeviceptr> AskPoolCounted(Pool*, uint64_t, StreamKey) asm("__wrap_" COMMPOOL_POOL);
Result<CUdeviceptr> AskPoolCounted(Pool* pool, uint64_t bytes, StreamKey stream) {
  ++asked.pool;
  return AskPool(pool, bytes, stream);
}

#define COMMPOOL_OWN "_ZN8commpool8internal6engine13CachingEngine11AllocateOwnEmm"
engine::SegmentRange AskOwn(engine::CachingEngine*, uint64_t, StreamKey) asm("__real_" COMMPOOL_OWN);
engine::SegmentRange AskOwnCounted(engine::CachingEngine*, uint64_t, StreamKey) asm("__wrap_" COMMPOOL_OWN);
engine::SegmentRange AskOwnCounted(engine::CachingEngine* engine, uint64_t bytes, StreamKey stream) {
  ++asked.engine;
  return AskOwn(engine, bytes, stream);
}

#define COMMPOOL_ANY "_ZN8commpool8internal6engine13CachingEngine8AllocateEmmNS1_5ReuseEm"
Result<engine::Outcome> AskAny(engine::CachingEngine*, uint64_t, StreamKey, engine::Reuse,
                               engine::Part) asm("__real_" COMMPOOL_ANY);
Result<engine::Outcome> AskAnyCounted(engine::CachingEngine*, uint64_t, StreamKey, engine::Reuse,
                                      engine::Part) asm("__wrap_" COMMPOOL_ANY);
Result<engine::Outcome> AskAnyCounted(engine::CachingEngine* engine, uint64_t bytes, StreamKey stream,
                                      engine::Reuse reuse, engine::Part part) {
  ++asked.engine;
  return AskAny(engine, bytes, stream, reuse, part);
}

// A mutex asks it before it locks, where NDEBUG is not set.
#define COMMPOOL_LOCK "_ZNK8commpool8internal5Mutex10CheckOrderEv"
void CheckOrder(const Mutex*) asm("__real_" COMMPOOL_LOCK);
void CheckOrderCounted(const Mutex*) asm("__wrap_" COMMPOOL_LOCK);
void CheckOrderCounted(const Mutex* mutex) {
  ++asked.locks;
  CheckOrder(mutex);
}

namespace {

class Rungs : public PoolTest {
 protected:
  CUdeviceptr Allocate(Target target, uint64_t bytes) {
    asked = {};
    const CUdeviceptr cached = runtime().AllocateAtOnce(target, bytes, nullptr);
    return Counted(cached != 0 ? cached : runtime().Allocate(target, bytes, nullptr).value());
  }
  void Free(CUdeviceptr address) {
    if (!runtime().FreeCached(address)) PoolTest::Free(address);
  }
  ScopeHandle BeginScope(const char* pool) {
    return runtime().scopes().Begin({.pool = runtime().pools().Find(Create(Configured(pool))).value()}).value();
  }
  static void ExpectAsked(const Asked& most, const std::string& what) {
    EXPECT_EQ(asked.scopes, most.scopes) << what;
    EXPECT_EQ(asked.caches, most.caches) << what;
    EXPECT_EQ(asked.pool, most.pool) << what;
    EXPECT_LE(asked.engine, most.engine) << what;
  }
};

TEST_F(Rungs, AreAskedOnceByAFirstAllocation) {
  for (const uint64_t bytes : {uint64_t{512}, 8 * kMiB}) {
    const PoolHandle pool = Create(Configured("first"));
    const CUdeviceptr named = Allocate(Target::Pool(pool), bytes);
    ExpectAsked({.scopes = 0, .caches = 1, .pool = 1, .engine = 3}, "a named pool");
    EXPECT_GE(asked.engine, 1) << "the counting sees the engine";
    Free(named);
    for (const Target target : {Target::Device(0), Target::ScopesOf(0)}) {
      const ScopeHandle scope = BeginScope("scoped");
      const CUdeviceptr caught = Allocate(target, bytes);
      ExpectAsked({.scopes = 1, .caches = 1, .pool = 1, .engine = 3}, "a scope");
      EXPECT_EQ(runtime().addresses().OwnerOf(caught).value()->name(), "scoped");
      EXPECT_TRUE(runtime().scopes().End(scope).ok());
      Free(caught);
    }
  }
  Allocate(Target::Device(0), 512);
  ExpectAsked({.scopes = 1, .caches = 1, .pool = 1, .engine = 3}, "the default pool");
}

TEST_F(Rungs, BelowTheOneThatServesAreNotAsked) {
  const ScopeHandle scope = BeginScope("known");
  for (int time = 0; time < 2; ++time) Free(Allocate(Target::Device(0), 512));
  Free(Allocate(Target::Device(0), 512));
  ExpectAsked({.scopes = 0, .caches = 0, .pool = 0, .engine = 0}, "the slot's cache serves");
  Free(Allocate(Target::Device(0), 8 * kMiB));
  Free(Allocate(Target::Device(0), 8 * kMiB));
  ExpectAsked({.scopes = 0, .caches = 0, .pool = 0, .engine = 1}, "the slot's pool serves");
  EXPECT_TRUE(runtime().scopes().End(scope).ok());
}

TEST_F(Rungs, TakeThePoolsLockOnceForALargeBlock) {
#ifdef NDEBUG
  GTEST_SKIP() << "a mutex does not check its order here";
#endif
  for (const Mode mode : {Mode::kFixed, Mode::kExpandable}) {
    const PoolHandle pool = CreateWith({.name = "large", .mode = mode});
    for (const uint64_t bytes : {kMiB + 1, 2 * kMiB, 3 * kMiB, 8 * kMiB, 64 * kMiB, 1024 * kMiB}) {
      Free(Allocate(Target::Pool(pool), bytes));
      const CUdeviceptr block = Allocate(Target::Pool(pool), bytes);
      EXPECT_EQ(asked.locks, 1) << bytes;
      asked = {};
      Free(block);
      EXPECT_EQ(asked.locks, 1) << bytes;
    }
  }
}

// Blocks that the program keeps come from no cache.
TEST_F(Rungs, TakeThePoolsLockOnceForASmallBlockThatNoCacheHas) {
#ifdef NDEBUG
  GTEST_SKIP() << "a mutex does not check its order here";
#endif
  const PoolHandle pool = Create(Configured("small"));
  Allocate(Target::Pool(pool), 1000);
  for (int time = 0; time < 10; ++time) {
    Allocate(Target::Pool(pool), 1000);
    EXPECT_EQ(asked.locks, 1);
  }
}

}  // namespace
}  // namespace commpool::internal::testing
