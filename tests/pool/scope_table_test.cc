// Open scopes: which pool an allocation is routed to, and in which order scopes end.
#include "src/pool/scope_table.h"

#include <functional>
#include <thread>

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
  std::shared_ptr<Pool> RouteOn(int device, StreamKey stream = 1) {
    const std::optional<CaughtBy> caught = table_.Route({device, stream, 1});
    return caught ? caught->pool : nullptr;
  }
  std::shared_ptr<Pool> Route(StreamKey stream = 1) { return RouteOn(0, stream); }
  static std::string Elsewhere(const std::function<std::string()>& call) {
    std::string text;
    std::thread([&] { text = call(); }).join();
    return text;
  }
  std::string NameRoutedElsewhere(StreamKey stream = 1) {
    return Elsewhere([&] {
      const std::shared_ptr<Pool> pool = Route(stream);
      return pool == nullptr ? std::string() : pool->name();
    });
  }

  const std::shared_ptr<Pool> first_ = Make("first");
  const std::shared_ptr<Pool> second_ = Make("second");
  ScopeTable table_;
};

TEST_F(Scopes, NoneCatchesAnythingAtFirst) { EXPECT_EQ(Route(), nullptr); }

TEST_F(Scopes, TheInnermostOfAThreadWins) {
  const ScopeHandle outer = Begin(first_);
  const ScopeHandle inner = Begin(second_);
  EXPECT_EQ(Route(), second_);
  EXPECT_TRUE(table_.End(inner).ok());
  EXPECT_EQ(Route(), first_);
  EXPECT_TRUE(table_.End(outer).ok());
  EXPECT_EQ(Route(), nullptr);
}

TEST_F(Scopes, OfAThreadDoNotRouteOtherThreads) {
  const ScopeHandle scope = Begin(first_);
  EXPECT_EQ(NameRoutedElsewhere(), "");
  EXPECT_TRUE(table_.End(scope).ok());
}

TEST_F(Scopes, OfTheProcessRouteEveryThread) {
  const ScopeHandle scope = Begin(first_, ScopeFilter::kProcess);
  EXPECT_EQ(Route(), first_);
  EXPECT_EQ(NameRoutedElsewhere(), "first");
  EXPECT_TRUE(table_.End(scope).ok());
  EXPECT_EQ(NameRoutedElsewhere(), "");
}

TEST_F(Scopes, OfAStreamRouteThatStreamFromAnyThread) {
  const ScopeHandle scope = Begin(first_, ScopeFilter::kStream, 8);
  EXPECT_EQ(Route(8), first_);
  EXPECT_EQ(Route(16), nullptr);
  EXPECT_EQ(NameRoutedElsewhere(8), "first");
  EXPECT_EQ(NameRoutedElsewhere(16), "");
  EXPECT_TRUE(table_.End(scope).ok());
}

TEST_F(Scopes, TheOneBegunLastWinsWhateverItsFilter) {
  const ScopeHandle process = Begin(first_, ScopeFilter::kProcess);
  const ScopeHandle thread = Begin(second_);
  EXPECT_EQ(Route(8), second_);
  const ScopeHandle stream = Begin(first_, ScopeFilter::kStream, 8);
  EXPECT_EQ(Route(8), first_);
  EXPECT_EQ(Route(16), second_);
  EXPECT_TRUE(table_.End(thread).ok());
  EXPECT_EQ(Route(16), first_);
  EXPECT_TRUE(table_.End(process).ok());
  EXPECT_EQ(Route(16), nullptr);
  EXPECT_EQ(Route(8), first_);
  EXPECT_TRUE(table_.End(stream).ok());
}

TEST_F(Scopes, CatchOnlyTheirPoolsDevice) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const std::shared_ptr<Pool> far = Make("far", 1);
  for (const ScopeFilter filter : {ScopeFilter::kThread, ScopeFilter::kProcess}) {
    const ScopeHandle near_scope = Begin(first_);
    const ScopeHandle far_scope = Begin(far, filter);
    EXPECT_EQ(RouteOn(0), first_) << "the scope of device 1 lets device 0 through";
    EXPECT_EQ(RouteOn(1), far);
    EXPECT_TRUE(table_.End(far_scope).ok());
    EXPECT_TRUE(table_.End(near_scope).ok());
  }
}

TEST_F(Scopes, EndOnce) {
  const ScopeHandle scope = Begin(first_);
  EXPECT_TRUE(table_.End(scope).ok());
  EXPECT_EQ(table_.End(scope).code(), StatusCode::kNotFound);
  EXPECT_EQ(table_.End(0).code(), StatusCode::kNotFound);
  EXPECT_EQ(table_.End(12345).code(), StatusCode::kNotFound);
}

TEST_F(Scopes, OfAThreadEndOnTheirOwnThread) {
  const ScopeHandle scope = Begin(first_);
  const std::string message = Elsewhere([&] { return table_.End(scope).message(); });
  EXPECT_NE(message.find("another thread"), std::string::npos) << message;
  EXPECT_EQ(Route(), first_) << "it stays open";
  EXPECT_TRUE(table_.End(scope).ok());
}

TEST_F(Scopes, OfAThreadEndInnermostFirst) {
  const ScopeHandle outer = Begin(first_);
  const ScopeHandle inner = Begin(second_);
  Status status = table_.End(outer);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("end scope " + std::to_string(inner) + " first"), std::string::npos)
      << status.message();
  EXPECT_EQ(Route(), second_);
  EXPECT_TRUE(table_.End(inner).ok());
  EXPECT_TRUE(table_.End(outer).ok());
}

TEST_F(Scopes, OfStreamsAndTheProcessEndInAnyOrderOnAnyThread) {
  const ScopeHandle process = Begin(first_, ScopeFilter::kProcess);
  const ScopeHandle stream = Begin(second_, ScopeFilter::kStream, 8);
  EXPECT_EQ(Elsewhere([&] { return table_.End(process).message(); }), "");
  EXPECT_EQ(Elsewhere([&] { return table_.End(stream).message(); }), "");
  EXPECT_EQ(Route(8), nullptr);
}

TEST_F(Scopes, OfTwoTablesDoNotMeet) {
  ScopeTable other;
  const ScopeHandle scope = Begin(first_);
  EXPECT_FALSE(other.Route({0, 1, 1}));
  EXPECT_EQ(other.End(scope).code(), StatusCode::kNotFound);
  EXPECT_TRUE(table_.End(scope).ok());
}

// A scope table asks a pool who it is, and nothing of its mode.
class UncalledMode final : public PoolMode {
 public:
  Result<CUdeviceptr> Allocate(uint64_t, StreamKey) override { return Uncalled(); }
  Result<engine::Freed> FreeInEngine(CUdeviceptr) override { return Uncalled(); }
  bool EndsWithItsFree(CUdeviceptr) const override { return true; }
  void AfterFree() override {}
  void ForgetStream(StreamKey) override {}
  Status Reserve(uint64_t) override { return Uncalled(); }
  Result<uint64_t> Reclaim() override { return Uncalled(); }
  Result<uint64_t> Trim(uint64_t) override { return Uncalled(); }
  uint64_t ReleaseUnused() override { return 0; }
  Status Close() override { return Uncalled(); }
  void AfterDestroy() override {}
  Status RegisterWith(ncclComm_t) override { return Uncalled(); }
  Result<uint64_t> RegisterPending() override { return Uncalled(); }
  Status Deregister(ncclComm_t) override { return Uncalled(); }
  Status Rehome(ncclComm_t) override { return Uncalled(); }
  Status AbandonCommunicator(ncclComm_t, CommunicatorLife) override { return Uncalled(); }

 private:
  static Status Uncalled() { return Status(StatusCode::kInternal, "a scope table calls no pool"); }
};

class SymmetricScopes : public Scopes {
 protected:
  std::shared_ptr<Pool> MakeSymmetric() {
    PoolConfiguration configuration = Configured("windows");
    configuration.home = reinterpret_cast<ncclComm_t>(this);  // never looked at
    auto parts = std::make_unique<PoolParts>(
        PoolBasis{driver(), runtime_parts_, devices_.Get(0).value(), configuration, "pool windows"},
        RegistrationKind::kWindow,
        std::make_unique<engine::SymmetricEngine>(engine::EngineOptions{}, engine::FreeOrder::kDeferred),
        MakeBacking(driver(), configuration.backing).value(), devices_.AccountOf({}).value());
    return Pool::Make(std::move(parts), std::make_unique<UncalledMode>());
  }

 private:
  DeviceTable devices_{driver()};
  RuntimeParts runtime_parts_{driver()};
};

TEST_F(SymmetricScopes, OfTheProcessAreRefused) {
  const std::shared_ptr<Pool> symmetric = MakeSymmetric();
  Result<ScopeHandle> refused = table_.Begin({symmetric, ScopeFilter::kProcess});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("windows"), std::string::npos) << refused.status().message();
  EXPECT_EQ(Route(), nullptr);
  for (const ScopeFilter filter : {ScopeFilter::kThread, ScopeFilter::kStream}) {
    const ScopeHandle scope = Begin(symmetric, filter, 8);
    EXPECT_EQ(Route(8), symmetric);
    EXPECT_TRUE(table_.End(scope).ok());
  }
}

}  // namespace
}  // namespace commpool::internal::testing
