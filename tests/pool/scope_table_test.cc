// Open scopes: which pool gets an allocation, and the order in which scopes end.
#include "src/library/pool/scope_table.h"

#include <atomic>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include "src/library/pool/scopes/own_scopes.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class Scopes : public PoolTest {
 protected:
  std::shared_ptr<Pool> Make(const char* name, int device = 0) {
    return runtime().pools().Find(Create(Configured(name, device))).value();
  }
  ScopeHandle Begin(const std::shared_ptr<Pool>& pool, ScopeFilter filter = ScopeFilter::kThread,
                    StreamKey stream = 0) {
    return table_.Begin({pool, filter, stream}).value();
  }
  std::shared_ptr<Pool> RouteOn(int device, StreamKey stream = kStream) {
    const std::optional<CaughtBy> caught = table_.Route({device, stream, 1});
    if (!caught) return nullptr;
    return caught->pool == kSymmetric ? symmetric_ : runtime().pools().Find(caught->pool).value();
  }
  std::shared_ptr<Pool> Route(StreamKey stream = kStream) { return RouteOn(0, stream); }
  void End(ScopeHandle scope, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    ExpectOk(table_.End(scope), file, line);
  }
  // So many requests that a table looks whether a scope is open.
  static void MissMany(ScopeTable& table) {
    for (uint32_t time = 0; time < ScopeTable::kUncaughtForALook; ++time) table.NoteUncaught();
  }
  static std::string Elsewhere(const std::function<std::string()>& call) {
    std::string text;
    std::thread([&] { text = call(); }).join();
    return text;
  }
  std::string NameRoutedElsewhere(StreamKey stream = kStream) {
    return Elsewhere([&] {
      const std::shared_ptr<Pool> pool = Route(stream);
      return pool == nullptr ? std::string() : pool->name();
    });
  }

  static constexpr StreamKey kStream = 4096;
  static constexpr PoolHandle kSymmetric = 1 << 20;

  std::shared_ptr<Pool> symmetric_;  // in no table
  const std::shared_ptr<Pool> first_ = Make("first");
  const std::shared_ptr<Pool> second_ = Make("second");
  ScopeTable table_;
};

TEST_F(Scopes, NoneCatchesAnythingAtFirst) { EXPECT_EQ(Route(), nullptr); }

TEST_F(Scopes, TheInnermostOfAThreadWins) {
  const ScopeHandle outer = Begin(first_);
  const ScopeHandle inner = Begin(second_);
  EXPECT_EQ(Route(), second_);
  End(inner);
  EXPECT_EQ(Route(), first_);
  End(outer);
  EXPECT_EQ(Route(), nullptr);
}

TEST_F(Scopes, OfAThreadDoNotRouteOtherThreads) {
  const ScopeHandle scope = Begin(first_);
  EXPECT_EQ(NameRoutedElsewhere(), "");
  End(scope);
}

TEST_F(Scopes, OfTheProcessRouteEveryThread) {
  const ScopeHandle scope = Begin(first_, ScopeFilter::kProcess);
  EXPECT_EQ(Route(), first_);
  EXPECT_EQ(NameRoutedElsewhere(), "first");
  End(scope);
  EXPECT_EQ(NameRoutedElsewhere(), "");
}

TEST_F(Scopes, OfAStreamRouteThatStreamFromAnyThread) {
  const ScopeHandle scope = Begin(first_, ScopeFilter::kStream, 8);
  EXPECT_EQ(Route(8), first_);
  EXPECT_EQ(Route(16), nullptr);
  EXPECT_EQ(NameRoutedElsewhere(8), "first");
  EXPECT_EQ(NameRoutedElsewhere(16), "");
  End(scope);
}

TEST_F(Scopes, TheOneBegunLastWinsWithAnyFilter) {
  const ScopeHandle process = Begin(first_, ScopeFilter::kProcess);
  const ScopeHandle thread = Begin(second_);
  EXPECT_EQ(Route(8), second_);
  const ScopeHandle stream = Begin(first_, ScopeFilter::kStream, 8);
  EXPECT_EQ(Route(8), first_);
  EXPECT_EQ(Route(16), second_);
  End(thread);
  EXPECT_EQ(Route(16), first_);
  End(process);
  EXPECT_EQ(Route(16), nullptr);
  EXPECT_EQ(Route(8), first_);
  End(stream);
}

TEST_F(Scopes, CatchOnlyTheirPoolsDevice) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const std::shared_ptr<Pool> far = Make("far", 1);
  for (const ScopeFilter filter : {ScopeFilter::kThread, ScopeFilter::kProcess}) {
    const ScopeHandle near_scope = Begin(first_);
    const ScopeHandle far_scope = Begin(far, filter);
    EXPECT_EQ(RouteOn(0), first_) << "the scope of device 1 lets device 0 through";
    EXPECT_EQ(RouteOn(1), far);
    End(far_scope);
    End(near_scope);
  }
}

TEST_F(Scopes, EndOnce) {
  const ScopeHandle scope = Begin(first_);
  End(scope);
  EXPECT_EQ(table_.End(scope).code(), StatusCode::kNotFound);
  EXPECT_EQ(table_.End(0).code(), StatusCode::kNotFound);
  EXPECT_EQ(table_.End(12345).code(), StatusCode::kNotFound);
}

// The thread's scopes further out and further in stay as they were.
TEST_F(Scopes, OfAThreadEndWithAWarningOnAnotherThread) {
  const ScopeHandle outer = Begin(first_);
  const ScopeHandle scope = Begin(second_);
  const uint64_t shared_changes = table_.shared_changes();
  ::testing::internal::CaptureStderr();
  const std::string message = Elsewhere([&] { return table_.End(scope).message(); });
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(message.find("another thread"), std::string::npos) << message;
  EXPECT_NE(said.find(message), std::string::npos) << said;
  EXPECT_NE(table_.shared_changes(), shared_changes) << "the thread would go by what it knows";
  EXPECT_EQ(Route(), first_);
  EXPECT_EQ(table_.End(scope).code(), StatusCode::kNotFound);
  const ScopeHandle inner = Begin(second_);
  EXPECT_EQ(Route(), second_);
  End(inner);
  EXPECT_TRUE(table_.End(outer).ok()) << "what another thread ended is no longer in its way";
  EXPECT_EQ(Route(), nullptr);
}

TEST_F(Scopes, OfAThreadEndWithAWarningBeforeTheirInnerOnes) {
  const ScopeHandle outer = Begin(first_);
  const ScopeHandle inner = Begin(second_);
  ::testing::internal::CaptureStderr();
  const Status status = table_.End(outer);
  const std::string said = ::testing::internal::GetCapturedStderr();
  ExpectFailure(status, StatusCode::kFailedPrecondition, "before scope " + std::to_string(inner));
  EXPECT_NE(said.find(status.message()), std::string::npos) << said;
  EXPECT_EQ(Route(), second_);
  End(inner);
  EXPECT_EQ(Route(), nullptr) << "the outer one ended";
  EXPECT_EQ(table_.End(outer).code(), StatusCode::kNotFound);
}

TEST_F(Scopes, ThatOtherThreadsEndTakeNoRoomForEver) {
  std::atomic<uint64_t> flag{0};
  ScopeTable table;
  table.ShowIn(flag);
  for (int time = 0; time < 100; ++time) {
    const ScopeHandle scope = table.Begin({first_}).value();
    EXPECT_NE(Elsewhere([&] { return table.End(scope).message(); }), "");
  }
  MissMany(table);
  EXPECT_EQ(flag, 0u) << "none is open";
}

TEST_F(Scopes, OfStreamsAndTheProcessEndInAnyOrderOnAnyThread) {
  const ScopeHandle process = Begin(first_, ScopeFilter::kProcess);
  const ScopeHandle stream = Begin(second_, ScopeFilter::kStream, 8);
  EXPECT_EQ(Elsewhere([&] { return table_.End(process).message(); }), "");
  EXPECT_EQ(Elsewhere([&] { return table_.End(stream).message(); }), "");
  EXPECT_EQ(Route(8), nullptr);
}

TEST_F(Scopes, BeginAtOnceFromTheSecondOn) {
  EXPECT_EQ(table_.BeginAtOnce({first_->handle(), {}}), 0u) << "the thread has no stack yet";
  const ScopeHandle outer = Begin(first_);
  const ScopeHandle inner = table_.BeginAtOnce({second_->handle(), {}});
  ASSERT_NE(inner, 0u);
  EXPECT_NE(inner, outer);
  EXPECT_EQ(Route(), second_);
  EXPECT_FALSE(table_.EndAtOnce(outer)) << "it is not the innermost";
  EXPECT_TRUE(table_.EndAtOnce(inner));
  EXPECT_FALSE(table_.EndAtOnce(inner)) << "it has ended";
  EXPECT_EQ(Route(), first_);
  End(outer);
}

TEST_F(Scopes, NestAsDeepAsTheProgramLikes) {
  std::vector<ScopeHandle> open;
  for (int depth = 0; depth < 100; ++depth) {
    open.push_back(Begin(depth % 2 == 0 ? first_ : second_));
    EXPECT_EQ(Route(), depth % 2 == 0 ? first_ : second_);
  }
  EXPECT_EQ(table_.End(open.front()).code(), StatusCode::kFailedPrecondition);
  open.erase(open.begin());
  for (; !open.empty(); open.pop_back()) End(open.back());
  EXPECT_EQ(Route(), nullptr);
}

TEST_F(Scopes, HaveHandlesThatAreNeverGivenAgain) {
  std::set<ScopeHandle> handles;
  const auto use_many = [&] {
    for (int time = 0; time < 3000; ++time) {
      const ScopeHandle scope = Begin(first_);
      EXPECT_TRUE(handles.insert(scope).second) << scope;
      End(scope);
    }
    const ScopeHandle process = Begin(first_, ScopeFilter::kProcess);
    EXPECT_TRUE(handles.insert(process).second) << process;
    End(process);
  };
  use_many();
  std::thread(use_many).join();
}

TEST_F(Scopes, OfAnEndedThreadHaveEnded) {
  ScopeHandle scope = 0;
  std::thread([&] { scope = Begin(first_); }).join();
  EXPECT_EQ(table_.End(scope).code(), StatusCode::kNotFound);
}

TEST_F(Scopes, OfTheProcessMayBeMany) {
  std::vector<ScopeHandle> open;
  for (size_t count = 0; count < 48; ++count) {
    open.push_back(Begin(count % 2 == 0 ? first_ : second_, ScopeFilter::kProcess));
    EXPECT_EQ(runtime().pools().Find(table_.Route({0, kStream, 1})->pool).value(), count % 2 == 0 ? first_ : second_);
  }
  for (const ScopeHandle scope : open) End(scope);
  EXPECT_EQ(Route(), nullptr);
}

// Goes from scope to scope outwards, as an exhausted pool hands a request on.
TEST_F(Scopes, AreAskedFromTheLatestBegunOutwards) {
  std::vector<ScopeHandle> open = {Begin(first_, ScopeFilter::kProcess), Begin(first_), Begin(second_),
                                   Begin(second_, ScopeFilter::kStream, kStream), Begin(first_)};
  std::vector<ScopeHandle> met;
  for (auto caught = table_.Route({0, kStream, 1}); caught; caught = table_.Route({0, kStream, 1}, caught->place)) {
    met.push_back(caught->scope);
  }
  EXPECT_EQ(met, std::vector<ScopeHandle>(open.rbegin(), open.rend()));
  for (; !open.empty(); open.pop_back()) End(open.back());
}

TEST_F(Scopes, ShowThatOneIsOpenAndLaterThatNoneIs) {
  std::atomic<uint64_t> flag{0};
  ScopeTable table;
  table.ShowIn(flag);
  const ScopeHandle scope = table.Begin({first_}).value();
  EXPECT_NE(flag, 0u);
  std::thread([&] { MissMany(table); }).join();
  EXPECT_NE(flag, 0u) << "another thread's scope is open";
  EXPECT_TRUE(table.End(scope).ok());
  MissMany(table);
  EXPECT_EQ(flag, 0u);
  const ScopeHandle again = table.BeginAtOnce({first_->handle(), {}});
  ASSERT_NE(again, 0u);
  EXPECT_NE(flag, 0u) << "also without a lock";
  EXPECT_TRUE(table.End(again).ok());
  const ScopeHandle process = table.Begin({first_, ScopeFilter::kProcess}).value();
  MissMany(table);
  EXPECT_NE(flag, 0u);
  EXPECT_TRUE(table.End(process).ok());
}

// Threads begin and end their own scopes. Other threads begin and end scopes of the process, end the second thread's
// scopes, and check whether the flag may be lowered. A thread inside a scope that nobody else ends is always routed and
// shown.
TEST_F(Scopes, OfManyThreadsRouteTheirOwn) {
  constexpr int kTimes = 2000;
  std::atomic<uint64_t> flag{0};
  ScopeTable table;
  table.ShowIn(flag);
  std::atomic<ScopeHandle> last{0};
  const auto use_own = [&](const std::shared_ptr<Pool>& pool, bool alone) {
    for (int time = 0; time < kTimes; ++time) {
      const ScopeHandle outer = table.Begin({.pool = pool, .sizes = {2, 2}}).value();
      ScopeHandle inner = table.BeginAtOnce({pool->handle(), {1, 1}});
      if (inner == 0) inner = table.Begin({.pool = pool, .sizes = {1, 1}}).value();
      if (!alone) last = inner;
      ASSERT_NE(flag, 0u);
      const std::optional<CaughtBy> caught = table.Route({0, kStream, 1});
      ASSERT_TRUE(!alone || caught) << "its own, or the process's begun later";
      // After another thread has ended a scope, the next one that catches may have begun before the outer one.
      ASSERT_EQ(table.Route({0, kStream, 2}, alone ? caught->place : kInnermost)->scope, outer);
      const StatusCode ended = table.End(inner).code();
      ASSERT_TRUE(ended == StatusCode::kOk || (!alone && ended == StatusCode::kNotFound));
      ASSERT_TRUE(table.End(outer).ok());
    }
  };
  std::thread first(use_own, first_, true);
  std::thread second(use_own, second_, false);
  for (int time = 0; time < kTimes; ++time) {
    const ScopeHandle process = table.Begin({.pool = first_, .filter = ScopeFilter::kProcess, .sizes = {1, 1}}).value();
    EXPECT_TRUE(table.Route({0, kStream, 1}).has_value());
    const StatusCode foreign = table.End(last).code();
    EXPECT_TRUE(foreign == StatusCode::kNotFound || foreign == StatusCode::kFailedPrecondition);
    EXPECT_TRUE(table.End(process).ok());
    table.NoteUncaught();
  }
  first.join();
  second.join();
}

TEST_F(Scopes, OfTwoTablesDoNotMeet) {
  ScopeTable other;
  const ScopeHandle scope = Begin(first_);
  EXPECT_FALSE(other.Route({0, 1, 1}));
  EXPECT_EQ(other.End(scope).code(), StatusCode::kNotFound);
  End(scope);
}

// A scope table asks a pool only its name.
class UncalledMode final : public PoolMode {
 public:
  using PoolMode::PoolMode;
  Result<CUdeviceptr> Allocate(uint64_t, StreamKey) override { return Uncalled(); }
  void AfterFree() override {}
  void ForgetStream(StreamKey) override {}
  Status Reserve(uint64_t) override { return Uncalled(); }
  Result<uint64_t> Reclaim() override { return Uncalled(); }
  Result<uint64_t> Trim(uint64_t) override { return Uncalled(); }
  uint64_t ReleaseUnused(Wait) override { return 0; }
  Status Close() override { return Uncalled(); }
  Status Sleep(const SleepRequest&, OtherPoolsOfCall) override { return Uncalled(); }
  Status Wake(const SleepRequest&, OtherPoolsOfCall) override { return Uncalled(); }
  void AfterDestroy() override {}
  Status RegisterWith(ncclComm_t) override { return Uncalled(); }
  Result<uint64_t> RegisterPending() override { return Uncalled(); }
  Status Deregister(ncclComm_t) override { return Uncalled(); }
  Status AddRegistrar(const RegistrarRequest&) override { return Uncalled(); }
  Status RemoveRegistrar(const std::string&) override { return Uncalled(); }

 private:
  static Status Uncalled() { return Status(StatusCode::kInternal, "a scope table calls no pool"); }
};

class SymmetricScopes : public Scopes {
 protected:
  ~SymmetricScopes() override { symmetric_.reset(); }  // destroyed before what it depends on

  std::shared_ptr<Pool> MakeSymmetric() {
    PoolConfiguration configuration = Configured("windows");
    configuration.home = reinterpret_cast<ncclComm_t>(this);  // nobody looks at it
    std::unique_ptr<PoolBasis> basis(new PoolBasis{.runtime = runtime_parts_,
                                                   .device = devices_.Get(0).value(),
                                                   .configuration = configuration,
                                                   .title = "pool windows"});
    symmetric_ = Pool::Make(
        {std::move(basis), MakeBacking(driver(), configuration.backing).value(), devices_.AccountOf({}).value(),
         std::make_unique<engine::SymmetricEngine>(engine::EngineOptions{}, engine::FreeOrder::kDeferred)},
        [](const PoolParts& parts) { return std::make_unique<UncalledMode>(parts); });
    symmetric_->basis().handle = kSymmetric;
    return symmetric_;
  }

 private:
  DeviceTable devices_{driver()};
  RuntimeParts runtime_parts_{driver(), devices_, search_};
  PoolTable pools_;
  MemorySearch search_{pools_, runtime_parts_};
};

TEST_F(SymmetricScopes, OfTheProcessAreRefused) {
  const std::shared_ptr<Pool> symmetric = MakeSymmetric();
  ExpectFailure(table_.Begin({symmetric, ScopeFilter::kProcess}).status(), StatusCode::kInvalidArgument, "windows");
  EXPECT_EQ(Route(), nullptr);
  for (const ScopeFilter filter : {ScopeFilter::kThread, ScopeFilter::kStream}) {
    const ScopeHandle scope = Begin(symmetric, filter, 8);
    EXPECT_EQ(Route(8), symmetric);
    End(scope);
  }
}

TEST(SharedScope, CatchesItsDevicesItsStreamsAndItsSizes) {
  const SharedScope scope{.stream = 7, .plan = {.sizes = {10, 20}, .device = 1}};
  EXPECT_TRUE(scope.Catches({.device = 1, .stream = 7, .bytes = 10}));
  EXPECT_FALSE(scope.Catches({.device = 0, .stream = 7, .bytes = 10}));
  EXPECT_FALSE(scope.Catches({.device = 1, .stream = 8, .bytes = 10}));
  EXPECT_FALSE(scope.Catches({.device = 1, .stream = 7, .bytes = 9}));
  EXPECT_TRUE(SharedScope{}.Catches({.stream = 8})) << "that of the process has every stream";
}

}  // namespace
}  // namespace commpool::internal::testing
