// Fixed pools register local buffers: existing segments at once, later ones when asked. A new segment may lie where an
// old one was, whose registrations and graphs do not count for it.
#include <functional>
#include <vector>

#include "tests/pool/announced_capture.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

// A fixed pool, and a communicator of one rank to register local buffers with.
class FixedRegistration : public DriverTest {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_NCCL();
    if (!driver().nccl.has_local_registration()) GTEST_SKIP() << driver().nccl.WhyNoLocalRegistration();
    group_.emplace(1);
    current_.emplace(driver(), rank().context);
    runtime_ = std::make_unique<Runtime>(shared_driver());
    pool_ = Make("fixed");
  }
  void TearDown() override {
    if (!group_) return;
    ExpectOk({pool_->Close()});
    pool_.reset();
    runtime_.reset();
    current_.reset();
    group_.reset();
  }

  Rank& rank() { return (*group_)[0]; }
  Runtime& runtime() { return *runtime_; }
  Pool& pool() { return *pool_; }
  ncclComm_t communicator() { return rank().communicator; }
  StreamKey key() { return KeyOfStream(rank().stream, rank().number); }
  CUdeviceptr Allocate(uint64_t bytes) { return pool().Allocate(bytes, key()).value(); }
  std::shared_ptr<Pool> Make(const char* name) {
    PoolConfiguration configuration;
    configuration.name = name;
    configuration.streams = Streams::kOutlive;
    return runtime_->pools().Find(runtime_->CreatePool(configuration).value()).value();
  }
  Status Register() { return pool().mode().RegisterWith(communicator()); }
  Status Deregister() { return pool().mode().Deregister(communicator()); }
  Status Sleep(Keep keep = Keep::kDiscard) {
    return SleepAlone(pool(), {.keep = keep, .graphs = LiveGraphs::kDiscarded});
  }
  Status Wake() { return WakeAlone(pool()); }
  uint64_t registered() { return pool().Statistics().registered_segments; }
  uint64_t pending() { return pool().Statistics().pending_segments; }

 private:
  std::optional<RankGroup> group_;
  std::optional<ContextGuard> current_;
  std::unique_ptr<Runtime> runtime_;
  std::shared_ptr<Pool> pool_;
};

using FixedRegistrationUnderFaults = UnderFaults<FixedRegistration>;

TEST_F(FixedRegistration, LaterSegmentsWaitForRegisterPending) {
  ExpectOk({pool().mode().Reserve(32 * kMiB), Register()});
  EXPECT_EQ(registered(), 1u);
  const uint64_t calls = CallCount("ncclCommRegister");
  const CUdeviceptr first = Allocate(32 * kMiB);
  const CUdeviceptr later = Allocate(64 * kMiB);
  ExpectCalls("ncclCommRegister", calls, 0);
  EXPECT_EQ(pending(), 1u);
  EXPECT_EQ(pool().mode().RegisterPending().value(), 1u);
  EXPECT_EQ(pool().mode().RegisterPending().value(), 0u);
  EXPECT_EQ(registered(), 2u);
  EXPECT_EQ(pending(), 0u);
  for (const CUdeviceptr block : {first, later}) ExpectOk({pool().Free(block)});
}

TEST_F(FixedRegistration, OfADestroyedPoolIsTold) {
  ExpectOk({pool().mode().Reserve(32 * kMiB), Register()});
  ::testing::internal::CaptureStderr();
  ExpectOk({runtime().DestroyPool(pool().handle())});
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("destroyed while registered: 32 MiB stay mapped until the process ends"), told.npos) << told;
}

TEST_F(FixedRegistration, ASecondRegisterWithTakesWhatIsPending) {
  ExpectOk({Register()});
  const CUdeviceptr block = Allocate(kMiB);
  EXPECT_EQ(pending(), 1u);
  ExpectOk({Register()});
  EXPECT_EQ(registered(), 1u);
  ExpectOk({pool().Free(block)});
}

TEST_F(FixedRegistration, EndsAsleepAndIsMadeAgain) {
  const CUdeviceptr block = Allocate(32 * kMiB);
  ExpectOk({Register()});
  const uint64_t deregistered = CallCount("ncclCommDeregister");
  ExpectOk({Sleep()});
  ExpectCalls("ncclCommDeregister", deregistered, 1);
  EXPECT_EQ(registered(), 0u);
  const uint64_t made = CallCount("ncclCommRegister");
  ExpectOk({Wake()});
  ExpectCalls("ncclCommRegister", made, 1);
  EXPECT_EQ(registered(), 1u);
  ExpectOk({Sleep(), Deregister(), Wake()});
  EXPECT_EQ(registered(), 0u) << "it was given up asleep";
  ExpectOk({pool().Free(block)});
}

TEST_F(FixedRegistrationUnderFaults, ThatFailsInWakingLeavesThePoolAsleep) {
  const CUdeviceptr block = Allocate(32 * kMiB);
  ExpectOk({Register(), Sleep(Keep::kHost)});
  ExpectFailure(With({.call = "ncclCommRegister", .result = ncclInternalError}, [&] { return Wake(); }),
                StatusCode::kCommunicatorError, "ncclCommRegister");
  EXPECT_TRUE(pool().basis().life.asleep());
  EXPECT_EQ(pool().Statistics().asleep_bytes, pool().Statistics().reserved_bytes.current);
  ExpectOk({Wake()});
  EXPECT_EQ(registered(), 1u);
  ExpectOk({pool().Free(block)});
}

TEST_F(FixedRegistrationUnderFaults, ThatNcclWouldNotEndKeepsItsMemoryMapped) {
  for (const std::function<Status()>& end : std::vector<std::function<Status()>>{
           [&] { return Deregister(); }, [&] { return Sleep(); }, [&] { return pool().Close(); }}) {
    ExpectOk({pool().mode().Reserve(32 * kMiB), Register()});
    ExpectFailure(With({.call = "ncclCommDeregister", .result = ncclInternalError}, end),
                  StatusCode::kCommunicatorError, "ncclCommDeregister");
    EXPECT_EQ(registered(), 1u);
    EXPECT_EQ(pool().mode().ReleaseUnused(Wait::kYes), 0u);
    EXPECT_EQ(pool().Statistics().reserved_bytes.current, 32 * kMiB);
    ExpectOk({end()});
    EXPECT_EQ(registered(), 0u) << "NCCL was asked again";
    if (pool().basis().life.asleep()) ExpectOk({Wake(), Deregister()});
    if (pool().basis().life.open()) {
      EXPECT_EQ(pool().Trim(0).value(), 32 * kMiB);
    }
    EXPECT_EQ(TakeReports(), std::vector<std::string>()) << "nothing registered was unmapped";
  }
}

TEST_F(FixedRegistrationUnderFaults, ThatNcclWouldNotEndIsEndedInAnAbandonment) {
  ExpectOk({pool().mode().Reserve(32 * kMiB), Register()});
  EXPECT_FALSE(With({.call = "ncclCommDeregister", .result = ncclInternalError}, [&] { return Deregister(); }).ok());
  ExpectFailure(Register(), StatusCode::kFailedPrecondition, "deregister it again first");
  ExpectOk({pool().mode().AbandonCommunicator(communicator(), CommunicatorLife::kAlive)});
  EXPECT_EQ(registered(), 0u);
  EXPECT_EQ(pool().Trim(0).value(), 32 * kMiB);
}

TEST_F(FixedRegistrationUnderFaults, KeepsItsMemoryMappedWhereWakingFails) {
  ExpectOk({pool().mode().Reserve(32 * kMiB), pool().mode().Reserve(64 * kMiB), Register()});
  ASSERT_EQ(registered(), 2u);
  ExpectOk({Sleep()});
  {
    const InjectedFault second({.call = "ncclCommRegister", .result = ncclInternalError, .skip = 1});
    const InjectedFault undoing({.call = "ncclCommDeregister", .result = ncclInternalError});
    ExpectFailure(Wake(), StatusCode::kCommunicatorError, "ncclCommRegister");
  }
  EXPECT_TRUE(pool().basis().life.asleep());
  EXPECT_EQ(pool().Statistics().asleep_bytes, 0u) << "NCCL may still use what it did not deregister";
  EXPECT_EQ(TakeReports(), std::vector<std::string>()) << "nothing registered was unmapped";
  ExpectOk({Wake()});
  EXPECT_EQ(registered(), 2u);
}

TEST_F(FixedRegistration, HasNoWindows) {
  const CUdeviceptr block = Allocate(kMiB);
  ExpectOk({Register()});
  EXPECT_FALSE(runtime().windows().Find(communicator(), block));
  ExpectOk({pool().Free(block)});
}

TEST_F(FixedRegistration, TrimKeepsRegisteredSegments) {
  ExpectOk({pool().mode().Reserve(32 * kMiB), Register(), pool().Free(Allocate(64 * kMiB))});
  EXPECT_EQ(pool().Trim(0).value(), 64 * kMiB);
  EXPECT_EQ(pool().mode().ReleaseUnused(Wait::kYes), 0u);
  EXPECT_EQ(pool().Statistics().reserved_bytes.current, 32 * kMiB);
  ExpectOk({Deregister()});
  EXPECT_EQ(registered(), 0u);
  EXPECT_EQ(pool().Trim(0).value(), 32 * kMiB);
}

TEST_F(FixedRegistration, DeregisteringWhatIsNotRegisteredDoesNothing) {
  ExpectOk({Deregister(), pool().mode().AbandonCommunicator(communicator(), CommunicatorLife::kEnded)});
}

TEST_F(FixedRegistration, DeregistersNothingWhileTheDeviceCannotBeWaitedFor) {
  ExpectOk({pool().mode().Reserve(2 * kMiB), Register()});
  const PoolHandle captured = Make("captured")->handle();
  AnnouncedCapture capture;
  ExpectOk({capture.Begin(runtime(), captured, rank().stream, CU_STREAM_CAPTURE_MODE_RELAXED)});
  ExpectFailure(Deregister(), StatusCode::kFailedPrecondition, "is being captured");
  EXPECT_EQ(registered(), 1u) << "NCCL may be at work";
  ExpectOk({capture.End()});
  capture.DestroyGraph();
  ExpectOk({Deregister(), runtime().DestroyPool(captured)});
  EXPECT_EQ(registered(), 0u);
}

TEST_F(FixedRegistration, RefusesUnusableCommunicators) {
  EXPECT_EQ(pool().mode().RegisterWith(nullptr).code(), StatusCode::kInvalidArgument);
  COMMPOOL_REQUIRE_DEVICES(2);
  RankGroup others(2);
  ExpectFailure(pool().mode().RegisterWith(others[1].communicator), StatusCode::kInvalidArgument,
                "cannot be registered with a communicator of device 1");
  EXPECT_EQ(registered(), 0u);
}

TEST_F(FixedRegistrationUnderFaults, AFailedRegistrationChangesNothing) {
  for (const uint64_t bytes : {32 * kMiB, 64 * kMiB}) ExpectOk({pool().mode().Reserve(bytes)});
  EXPECT_EQ(With({.call = "ncclCommRegister", .result = ncclSystemError, .skip = 1}, [&] { return Register(); }).code(),
            StatusCode::kCommunicatorError);
  EXPECT_EQ(registered(), 0u);
  EXPECT_EQ(pending(), 0u);  // the communicator is not remembered

  ExpectOk({Register()});
  for (const uint64_t bytes : {128 * kMiB, 256 * kMiB}) ExpectOk({pool().mode().Reserve(bytes)});
  EXPECT_EQ(With({.call = "ncclCommRegister", .result = ncclSystemError, .skip = 1},
                 [&] { return pool().mode().RegisterPending().status(); })
                .code(),
            StatusCode::kCommunicatorError);
  EXPECT_EQ(registered(), 2u);
  EXPECT_EQ(pending(), 2u);
}

TEST_F(FixedRegistration, ALiveGraphPinsWhatIsRegistered) {
  ExpectOk({pool().mode().Reserve(4 * kMiB), Register()});
  AnnouncedCapture capture;
  ExpectOk({capture.Begin(runtime(), pool().handle(), rank().stream), pool().Free(Allocate(kMiB)), capture.End()});
  ExpectFailure(Deregister(), StatusCode::kFailedPrecondition, "may still be replayed");
  ExpectFailure(pool().Close(), StatusCode::kFailedPrecondition, "1 graph that captured with the pool");
  EXPECT_EQ(pool().Trim(0).value(), 0u) << "a registered segment stays in any case";
  EXPECT_EQ(registered(), 1u);
  capture.DestroyGraph();
  ExpectOk({Deregister()});
  EXPECT_EQ(registered(), 0u);
}

TEST_F(FixedRegistration, DoesNotGrowInACapture) {
  ExpectOk({pool().mode().Reserve(4 * kMiB), Register()});
  AnnouncedCapture capture;
  ExpectOk({capture.Begin(runtime(), pool().handle(), rank().stream)});
  ExpectFailure(pool().Allocate(64 * kMiB, key()).status(), StatusCode::kOutOfMemory,
                "is registered, does not grow there");
  ExpectOk({capture.End()});
  capture.DestroyGraph();
  ExpectOk({Deregister()});
}

constexpr uint64_t kBytes = 32 * kMiB;

class ReturningFixed : public FixedRegistration {
 protected:
  void SetUp() override {
    FixedRegistration::SetUp();
    if (!IsSkipped()) other_ = Allocate(2 * kMiB);
  }
  void TearDown() override {
    if (other_ != 0) ExpectOk({pool().Free(other_)});
    FixedRegistration::TearDown();
  }

  // The address of the segment by which the pool grows; it is free again.
  CUdeviceptr AddressOfGrowth() {
    const CUdeviceptr block = Allocate(kBytes);
    ExpectOk({pool().Free(block)});
    return block;
  }

 private:
  CUdeviceptr other_ = 0;  // stays alive, because a pool without memory keeps no addresses
};

TEST_F(ReturningFixed, WhatWasRegisteredThereIsNotAgain) {
  ExpectOk({Register()});
  const CUdeviceptr before = AddressOfGrowth();
  EXPECT_EQ(pool().mode().RegisterPending().value(), 1u);
  EXPECT_EQ(registered(), 2u);
  EXPECT_EQ(pool().Trim(0).value(), 0u) << "what is registered stays";
  const uint64_t deregistered = CallCount("ncclCommDeregister");
  ExpectOk({Deregister()});
  ExpectCalls("ncclCommDeregister", deregistered, 2);
  ASSERT_EQ(pool().Trim(0).value(), kBytes);

  ExpectOk({Register()});
  const uint64_t calls = CallCount("ncclCommRegister");
  EXPECT_EQ(AddressOfGrowth(), before);
  EXPECT_EQ(registered(), 1u) << "the other";
  EXPECT_EQ(pending(), 1u);
  EXPECT_EQ(pool().mode().RegisterPending().value(), 1u);
  ExpectCalls("ncclCommRegister", calls, 1);
  ExpectOk({Deregister()});
}

TEST_F(ReturningFixed, AddressesOfALiveGraphDoNotReturn) {
  ExpectOk({pool().mode().Reserve(kBytes)});
  AnnouncedCapture capture;
  ExpectOk({capture.Begin(runtime(), pool().handle(), rank().stream)});
  const CUdeviceptr captured = Allocate(kBytes);
  ExpectOk({pool().Free(captured), capture.End()});
  EXPECT_EQ(pool().Trim(0).value(), 0u);
  EXPECT_NE(AddressOfGrowth(), captured);
  EXPECT_EQ(pool().Trim(0).value(), kBytes);
  capture.DestroyGraph();
  EXPECT_EQ(pool().Trim(0).value(), kBytes);
}

TEST_F(ReturningFixed, AnotherPoolHasItsOwn) {
  const CUdeviceptr before = AddressOfGrowth();
  ASSERT_EQ(pool().Trim(0).value(), kBytes);
  const std::shared_ptr<Pool> other = Make("other");
  const CUdeviceptr block = other->Allocate(kBytes, key()).value();
  EXPECT_NE(block, before);
  EXPECT_EQ(AddressOfGrowth(), before);
  ExpectOk({other->Free(block), other->Close()});
}

}  // namespace
}  // namespace commpool::internal::testing
