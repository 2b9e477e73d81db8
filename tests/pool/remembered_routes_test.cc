// The cache that served an allocation serves the next equal one without a look at the scopes, until a scope begins or
// ends that may matter. Nobody watches blocks here, so the fast path serves.
#include <array>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/library/base/bytes.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class RememberedRoutes : public PoolTest {
 protected:
  RememberedRoutes() {
    for (const CUstream stream : {first_.get(), second_.get(), CUstream{nullptr}}) {
      for (const PoolHandle pool : {runtime().DefaultPool(0).value(), one_, other_}) {
        // Every pool needs a cache for every stream.
        for (const uint64_t bytes : {512, 4096, 65536}) Free(Allocate(pool, bytes, stream));
      }
    }
  }

  ScopeHandle Begin(PoolHandle pool, ScopeFilter filter = ScopeFilter::kThread, SizeRange sizes = {}) {
    const StreamKey stream = runtime().NameOf(first_, 0).value().identity;
    return runtime().scopes().Begin({runtime().pools().Find(pool).value(), filter, stream, sizes}).value();
  }
  void End(ScopeHandle scope) { EXPECT_TRUE(runtime().scopes().End(scope).ok()); }
  CUdeviceptr AtOnce(Target target, uint64_t bytes, CUstream stream) {
    return Counted(runtime().AllocateAtOnce(target, bytes, stream));
  }
  std::string NameOf(CUdeviceptr address) { return runtime().addresses().OwnerOf(address).value()->name(); }

  // Which pool serves: the first call must look, later calls take the fast path, and all agree with the scopes.
  std::string ServedBy(uint64_t bytes, CUstream stream) {
    std::string server = "default";
    if (const auto caught = runtime().scopes().Route({0, runtime().NameOf(stream, 0).value().identity, bytes}))
      server = Get(caught->pool).name();
    for (int time = 0; time < 3; ++time) {
      CUdeviceptr address = AtOnce(Target::Device(0), bytes, stream);
      served_at_once_ += address != 0 ? 1 : 0;
      if (address == 0) address = Counted(runtime().Allocate(0, bytes, stream).value());
      EXPECT_EQ(NameOf(address), server);
      Free(address);
    }
    return server;
  }

  const TestStream first_;
  const TestStream second_;
  const PoolHandle one_ = Create(Configured("one"));
  const PoolHandle other_ = Create(Configured("other"));
  int served_at_once_ = 0;
};

// A free remembers the pool by a route of its own. Among so many streams some have the same place in the table.
TEST_F(RememberedRoutes, OfAStreamStayBesideThatOfFrees) {
  const std::array<TestStream, 128> streams;
  for (const TestStream& stream : streams) {
    Free(Allocate(one_, 2 * kMiB, stream));
    ASSERT_TRUE(Get(one_).blocks().WaitForDevice().ok());  // now and then a pending fence takes the long way
    const CUdeviceptr at_once = AtOnce(Target::Pool(one_), 2 * kMiB, stream);
    ASSERT_NE(at_once, 0u) << "the free pushed out the route of stream " << &stream - streams.data();
    Free(at_once);
  }
}

TEST_F(RememberedRoutes, ServeTheNextAllocation) {
  ServedBy(4096, first_);
  served_at_once_ = 0;
  ServedBy(4096, first_);
  ServedBy(512, first_);
  EXPECT_EQ(served_at_once_, 6) << "sizes that no scope tells apart are alike";
  const ScopeHandle scope = Begin(one_);
  EXPECT_EQ(AtOnce(Target::Device(0), 4096, first_), 0u) << "a scope has begun";
  EXPECT_EQ(ServedBy(4096, first_), "one");
  End(scope);
  EXPECT_EQ(AtOnce(Target::Device(0), 4096, first_), 0u) << "it has ended";
  EXPECT_EQ(ServedBy(4096, first_), "default");
}

TEST_F(RememberedRoutes, ServeTheLargestSizeOfCachesAndNoLarger) {
  ServedBy(engine::kSmallBytes, first_);
  EXPECT_GE(served_at_once_, 1);
  for (const uint64_t bytes : {uint64_t{0}, engine::kSmallBytes + 1}) {
    EXPECT_EQ(AtOnce(Target::Device(0), bytes, first_), 0u) << bytes;
    EXPECT_EQ(AtOnce(Target::Pool(one_), bytes, first_), 0u) << bytes;
  }
  Free(Allocate(one_, engine::kSmallBytes, first_));
  EXPECT_NE(AtOnce(Target::Pool(one_), engine::kSmallBytes, first_), 0u);
}

TEST_F(RememberedRoutes, ServeALargeBlockOfFreeMemory) {
  Free(Allocate(one_, 8 * kMiB));
  const CUdeviceptr served = AtOnce(Target::Pool(one_), 8 * kMiB, nullptr);
  EXPECT_EQ(NameOf(served), "one");
  EXPECT_EQ(AtOnce(Target::Pool(one_), 8 * kMiB, nullptr), 0u) << "the pool would have to grow";
}

// The handle may mean another stream then.
TEST_F(RememberedRoutes, ServeNoLargeBlockByAPromiseThatHasEnded) {
  EXPECT_TRUE(runtime().PromiseStream(first_).ok());
  for (int time = 0; time < 2; ++time) Free(Allocate(one_, 8 * kMiB, first_));
  EXPECT_TRUE(runtime().ReleaseStream(first_).ok());
  EXPECT_EQ(AtOnce(Target::Pool(one_), 8 * kMiB, first_), 0u);
}

TEST_F(RememberedRoutes, ServeNoSizeThatAScopeTellsApart) {
  const ScopeHandle scope = Begin(one_, ScopeFilter::kProcess, {4096, 65535});
  for (int time = 0; time < 2; ++time) {
    EXPECT_EQ(ServedBy(4096, nullptr), "one");
    EXPECT_EQ(ServedBy(4095, nullptr), "default");
    EXPECT_EQ(ServedBy(65535, nullptr), "one");
    EXPECT_EQ(ServedBy(65536, nullptr), "default");
  }
  End(scope);
}

TEST_F(RememberedRoutes, SeeTheScopesThatOtherThreadsBegin) {
  ServedBy(4096, first_);
  ScopeHandle scope = 0;
  std::thread([&] { scope = Begin(other_, ScopeFilter::kStream); }).join();
  EXPECT_EQ(ServedBy(4096, first_), "other");
  EXPECT_EQ(ServedBy(4096, second_), "default");
  std::thread([&] { End(scope); }).join();
  EXPECT_EQ(ServedBy(4096, first_), "default");
}

TEST_F(RememberedRoutes, EndWithTheirPool) {
  const PoolHandle brief = Create(Configured("brief"));
  Free(Allocate(brief, 4096));
  const ScopeHandle scope = Begin(brief);
  EXPECT_EQ(ServedBy(4096, nullptr), "brief");
  Destroy(brief);
  EXPECT_EQ(AtOnce(Target::Device(0), 4096, nullptr), 0u);
  EXPECT_EQ(runtime().Allocate(0, 4096, nullptr).status().code(), StatusCode::kFailedPrecondition);
  End(scope);
}

// What another thread does while an allocation is under way: within its next question for a stream's name.
class RoutesThatEnd : public PoolTest {
 protected:
  RoutesThatEnd() : PoolTest(Asking()) {}

  static std::shared_ptr<const Driver> Asking() {
    auto driver = std::make_shared<Driver>(*SharedDriver());
    static const auto name = driver->cuda.cuStreamGetId;
    driver->cuda.cuStreamGetId = [](CUstream stream, unsigned long long* id) {
      if (const auto act = std::exchange(meanwhile_, nullptr)) act();
      return name(stream, id);
    };
    return driver;
  }

  static inline std::function<void()> meanwhile_;
};

TEST_F(RoutesThatEnd, WithTheirScopeAndPoolLeaveTheRequestToAnother) {
  const CUstream stream = NewStream();
  const StreamKey key = runtime().NameOf(stream, 0).value().identity;
  const std::function<void(PoolHandle)> ends[] = {[&](PoolHandle pool) { Destroy(pool); },
                                                  [&](PoolHandle pool) { ExpectOk(Get(pool).Close()); }};
  for (const auto& end : ends) {
    for (const Target target : {Target::Device(0), Target::ScopesOf(0)}) {
      const PoolHandle pool = CreateWith({.name = "ended", .streams = Streams::kMayDie});
      const std::shared_ptr<Pool> held = runtime().pools().Find(pool).value();
      const ScopeHandle scope = runtime().scopes().Begin({held, ScopeFilter::kProcess, key, {}}).value();
      Free(Counted(runtime().Allocate(target, 4 * kMiB, stream).value()));
      meanwhile_ = [&] {
        ExpectOk(runtime().scopes().End(scope));
        end(pool);
      };
      const Result<CUdeviceptr> block = runtime().Allocate(target, 4 * kMiB, stream);
      ASSERT_EQ(meanwhile_, nullptr) << "nobody asked";
      EXPECT_EQ(block.status().code(), target == Target::Device(0) ? StatusCode::kOk : StatusCode::kNotCaught);
      if (block.ok()) Free(Counted(*block));
    }
  }
  DestroyStream(stream);
}

TEST_F(RememberedRoutes, AgreeWithTheScopesAfterAnyBeginAndEnd) {
  constexpr int kSteps = 2000;
  constexpr std::array<uint64_t, 6> kSizes = {1, 512, 3000, 4096, 20000, 70000};
  std::mt19937_64 random(7);
  std::vector<ScopeHandle> own;
  std::vector<ScopeHandle> shared;
  const auto end_last = [&](std::vector<ScopeHandle>& scopes) {
    End(scopes.back());
    scopes.pop_back();
  };
  for (int step = 0; step < kSteps; ++step) {
    const PoolHandle pool = random() % 2 == 0 ? one_ : other_;
    const uint64_t least = random() % 3 * 512;
    const SizeRange sizes{least, random() % 3 == 0 ? UINT64_MAX : least + random() % 70000};
    const uint64_t what = random() % 12;
    if (what == 0 && own.size() < 4) own.push_back(Begin(pool, ScopeFilter::kThread, sizes));
    if (what == 1 && shared.size() < 4) shared.push_back(Begin(pool, ScopeFilter::kProcess, sizes));
    if (what == 2 && shared.size() < 4) shared.push_back(Begin(pool, ScopeFilter::kStream, sizes));
    if (what == 3 && !own.empty()) end_last(own);
    if (what == 4 && !shared.empty()) end_last(shared);
    const CUstream stream = step % 3 == 0 ? first_.get() : step % 3 == 1 ? second_.get() : nullptr;
    ServedBy(kSizes[random() % kSizes.size()], stream);
  }
  while (!own.empty()) end_last(own);
  while (!shared.empty()) end_last(shared);
  EXPECT_GT(served_at_once_, kSteps);
}

}  // namespace
}  // namespace commpool::internal::testing
