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

// Only what the table asks of a pool.
class SymmetricStandIn : public Pool {
 public:
  const std::string& name() const override { return name_; }
  int device() const override { return 0; }
  bool symmetric() const override { return true; }

  Result<CUdeviceptr> Allocate(uint64_t, StreamKey) override { return Unused(); }
  Status Free(CUdeviceptr) override { return Unused(); }
  void TakeBack(const std::vector<engine::CachedBlock>&) override {}
  uint64_t alignment() const override { return 512; }
  const std::atomic<bool>& broken() const override { return broken_; }
  Status RecordStream(CUdeviceptr, StreamKey) override { return Unused(); }
  Status WaitForDevice() override { return Unused(); }
  void ForgetStream(StreamKey) override {}
  Status Reserve(uint64_t) override { return Unused(); }
  Result<uint64_t> Reclaim() override { return Unused(); }
  Result<uint64_t> Trim(uint64_t) override { return Unused(); }
  uint64_t ReleaseUnused() override { return 0; }
  Status Close() override { return Unused(); }
  void Retire() override {}
  void Abandon() override {}
  Status Grant(const std::vector<int>&) override { return Unused(); }
  Status Revoke(const std::vector<int>&) override { return Unused(); }
  Status RegisterWith(ncclComm_t) override { return Unused(); }
  Result<uint64_t> RegisterPending() override { return Unused(); }
  Status Deregister(ncclComm_t) override { return Unused(); }
  Status AbandonCommunicator(ncclComm_t) override { return Unused(); }
  Result<WindowPlace> WindowOf(CUdeviceptr, ncclComm_t) const override { return Unused(); }
  PoolFigures Figures() const override { return {}; }
  void ResetPeaks() override {}
  void CheckInvariants() const override {}

 private:
  std::atomic<bool> broken_{false};

  static Status Unused() { return Status(StatusCode::kInternal, "a scope table calls no pool"); }

  const std::string name_ = "windows";
};

TEST_F(Scopes, OfTheProcessAreRefusedBySymmetricPools) {
  const auto symmetric = std::make_shared<SymmetricStandIn>();
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
