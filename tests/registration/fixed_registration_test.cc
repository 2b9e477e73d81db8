// Fixed pools register local buffers: existing segments at once, later ones when asked.
#include <functional>
#include <vector>

#include "tests/pool/announced_capture.h"
#include "tests/registration/fixed_fixture.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

TEST_F(FixedRegistration, LaterSegmentsWaitForRegisterPending) {
  ExpectOk({pool().mode().Reserve(32 * kMiB)});
  ExpectOk({pool().mode().RegisterWith(communicator())});
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

TEST_F(FixedRegistration, ASecondRegisterWithTakesWhatIsPending) {
  ExpectOk({pool().mode().RegisterWith(communicator())});
  const CUdeviceptr block = Allocate(kMiB);
  EXPECT_EQ(pending(), 1u);
  ExpectOk({pool().mode().RegisterWith(communicator())});
  EXPECT_EQ(registered(), 1u);
  ExpectOk({pool().Free(block)});
}

TEST_F(FixedRegistration, EndsAsleepAndIsMadeAgain) {
  const CUdeviceptr block = Allocate(32 * kMiB);
  ExpectOk({pool().mode().RegisterWith(communicator())});
  const uint64_t deregistered = CallCount("ncclCommDeregister");
  ExpectOk({SleepAlone(pool(), {.graphs = LiveGraphs::kDiscarded})});
  ExpectCalls("ncclCommDeregister", deregistered, 1);
  EXPECT_EQ(registered(), 0u);
  const uint64_t made = CallCount("ncclCommRegister");
  ExpectOk({WakeAlone(pool())});
  ExpectCalls("ncclCommRegister", made, 1);
  EXPECT_EQ(registered(), 1u);
  ExpectOk({SleepAlone(pool(), {.graphs = LiveGraphs::kDiscarded})});
  ExpectOk({pool().mode().Deregister(communicator())});
  ExpectOk({WakeAlone(pool())});
  EXPECT_EQ(registered(), 0u) << "it was given up asleep";
  ExpectOk({pool().Free(block)});
}

TEST_F(FixedRegistration, ThatFailsInWakingLeavesThePoolAsleep) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  const CUdeviceptr block = Allocate(32 * kMiB);
  ExpectOk({pool().mode().RegisterWith(communicator())});
  ExpectOk({SleepAlone(pool(), {.keep = Keep::kHost, .graphs = LiveGraphs::kDiscarded})});
  {
    const InjectedFault fault({.call = "ncclCommRegister", .result = ncclInternalError});
    ExpectFailure(WakeAlone(pool()), StatusCode::kCommunicatorError, "ncclCommRegister");
  }
  EXPECT_TRUE(pool().basis().life.asleep());
  EXPECT_EQ(pool().Statistics().asleep_bytes, pool().Statistics().reserved_bytes.current);
  ExpectOk({WakeAlone(pool())});
  EXPECT_EQ(registered(), 1u);
  ExpectOk({pool().Free(block)});
}

TEST_F(FixedRegistration, ThatNcclWouldNotEndKeepsItsMemoryMapped) {
  COMMPOOL_REQUIRE_EMULATOR("faults are injected");
  const auto deregister = [&] { return pool().mode().Deregister(communicator()); };
  const auto sleep = [&] { return SleepAlone(pool(), {.graphs = LiveGraphs::kDiscarded}); };
  const auto close = [&] { return pool().Close(); };
  for (const std::function<Status()>& end : std::vector<std::function<Status()>>{deregister, sleep, close}) {
    ExpectOk({pool().mode().Reserve(32 * kMiB), pool().mode().RegisterWith(communicator())});
    {
      const InjectedFault fault({.call = "ncclCommDeregister", .result = ncclInternalError});
      ExpectFailure(end(), StatusCode::kCommunicatorError, "ncclCommDeregister");
    }
    EXPECT_EQ(registered(), 1u);
    EXPECT_EQ(pool().mode().ReleaseUnused(Wait::kYes), 0u);
    EXPECT_EQ(pool().Statistics().reserved_bytes.current, 32 * kMiB);
    ExpectOk({end()});
    EXPECT_EQ(registered(), 0u) << "NCCL was asked again";
    if (pool().basis().life.asleep()) ExpectOk({WakeAlone(pool()), deregister()});
    if (pool().basis().life.open()) {
      EXPECT_EQ(pool().Trim(0).value(), 32 * kMiB);
    }
    EXPECT_EQ(TakeReports(), std::vector<std::string>()) << "nothing registered was unmapped";
  }
}

TEST_F(FixedRegistration, ThatNcclWouldNotEndIsEndedInAnAbandonment) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  ExpectOk({pool().mode().Reserve(32 * kMiB), pool().mode().RegisterWith(communicator())});
  {
    const InjectedFault fault({.call = "ncclCommDeregister", .result = ncclInternalError});
    EXPECT_FALSE(pool().mode().Deregister(communicator()).ok());
  }
  ExpectFailure(pool().mode().RegisterWith(communicator()), StatusCode::kFailedPrecondition,
                "deregister it again first");
  ExpectOk({pool().mode().AbandonCommunicator(communicator(), CommunicatorLife::kAlive)});
  EXPECT_EQ(registered(), 0u);
  EXPECT_EQ(pool().Trim(0).value(), 32 * kMiB);
}

TEST_F(FixedRegistration, KeepsItsMemoryMappedWhereWakingFails) {
  COMMPOOL_REQUIRE_EMULATOR("faults are injected");
  ExpectOk({pool().mode().Reserve(32 * kMiB), pool().mode().Reserve(64 * kMiB)});
  ExpectOk({pool().mode().RegisterWith(communicator())});
  ASSERT_EQ(registered(), 2u);
  ExpectOk({SleepAlone(pool(), {.graphs = LiveGraphs::kDiscarded})});
  {
    const InjectedFault second({.call = "ncclCommRegister", .result = ncclInternalError, .skip = 1});
    const InjectedFault undoing({.call = "ncclCommDeregister", .result = ncclInternalError});
    ExpectFailure(WakeAlone(pool()), StatusCode::kCommunicatorError, "ncclCommRegister");
  }
  EXPECT_TRUE(pool().basis().life.asleep());
  EXPECT_EQ(pool().Statistics().asleep_bytes, 0u) << "NCCL may still use what it did not deregister";
  EXPECT_EQ(TakeReports(), std::vector<std::string>()) << "nothing registered was unmapped";
  ExpectOk({WakeAlone(pool())});
  EXPECT_EQ(registered(), 2u);
}

TEST_F(FixedRegistration, HasNoWindows) {
  const CUdeviceptr block = Allocate(kMiB);
  ExpectOk({pool().mode().RegisterWith(communicator())});
  EXPECT_FALSE(runtime().windows().Find(communicator(), block));
  ExpectOk({pool().Free(block)});
}

TEST_F(FixedRegistration, TrimKeepsRegisteredSegments) {
  ExpectOk({pool().mode().Reserve(32 * kMiB)});
  ExpectOk({pool().mode().RegisterWith(communicator())});
  ExpectOk({pool().Free(Allocate(64 * kMiB))});
  EXPECT_EQ(pool().Trim(0).value(), 64 * kMiB);
  EXPECT_EQ(pool().mode().ReleaseUnused(Wait::kYes), 0u);
  EXPECT_EQ(pool().Statistics().reserved_bytes.current, 32 * kMiB);
  ExpectOk({pool().mode().Deregister(communicator())});
  EXPECT_EQ(registered(), 0u);
  EXPECT_EQ(pool().Trim(0).value(), 32 * kMiB);
}

TEST_F(FixedRegistration, DeregisteringWhatIsNotRegisteredDoesNothing) {
  ExpectOk({pool().mode().Deregister(communicator())});
  ExpectOk({pool().mode().AbandonCommunicator(communicator(), CommunicatorLife::kEnded)});
}

TEST_F(FixedRegistration, DeregistersNothingWhileTheDeviceCannotBeWaitedFor) {
  ExpectOk({pool().mode().Reserve(2 * kMiB)});
  ExpectOk({pool().mode().RegisterWith(communicator())});
  PoolConfiguration configuration;
  configuration.name = "captured";
  const PoolHandle captured = runtime().CreatePool(configuration).value();
  AnnouncedCapture capture;
  ExpectOk({capture.Begin(runtime(), captured, rank().stream, CU_STREAM_CAPTURE_MODE_RELAXED)});
  ExpectFailure(pool().mode().Deregister(communicator()), StatusCode::kFailedPrecondition, "is being captured");
  EXPECT_EQ(registered(), 1u) << "NCCL may be at work";
  ExpectOk({capture.End()});
  capture.DestroyGraph();
  ExpectOk({pool().mode().Deregister(communicator()), runtime().DestroyPool(captured)});
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

TEST_F(FixedRegistration, AFailedRegistrationChangesNothing) {
  COMMPOOL_REQUIRE_EMULATOR("faults are injected");
  for (const uint64_t bytes : {32 * kMiB, 64 * kMiB}) ExpectOk({pool().mode().Reserve(bytes)});
  {
    const InjectedFault second({.call = "ncclCommRegister", .result = ncclSystemError, .skip = 1});
    EXPECT_EQ(pool().mode().RegisterWith(communicator()).code(), StatusCode::kCommunicatorError);
  }
  EXPECT_EQ(registered(), 0u);
  EXPECT_EQ(pending(), 0u);  // the communicator is not remembered

  ExpectOk({pool().mode().RegisterWith(communicator())});
  for (const uint64_t bytes : {128 * kMiB, 256 * kMiB}) ExpectOk({pool().mode().Reserve(bytes)});
  {
    const InjectedFault second({.call = "ncclCommRegister", .result = ncclSystemError, .skip = 1});
    EXPECT_EQ(pool().mode().RegisterPending().status().code(), StatusCode::kCommunicatorError);
  }
  EXPECT_EQ(registered(), 2u);
  EXPECT_EQ(pending(), 2u);
}

TEST_F(FixedRegistration, ALiveGraphPinsWhatIsRegistered) {
  ExpectOk({pool().mode().Reserve(4 * kMiB)});
  ExpectOk({pool().mode().RegisterWith(communicator())});
  EXPECT_EQ(driver().cuda.cuStreamBeginCapture(rank().stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  ExpectOk({pool().BeginCapture(1, rank().stream, KeyOfStream(rank().stream, rank().number))});
  const CUdeviceptr block = Allocate(kMiB);
  ExpectOk({pool().Free(block)});
  pool().EndCapture(1);
  CUgraph graph = nullptr;
  EXPECT_EQ(driver().cuda.cuStreamEndCapture(rank().stream, &graph), CUDA_SUCCESS);
  ExpectFailure(pool().mode().Deregister(communicator()), StatusCode::kFailedPrecondition, "may still be replayed");
  ExpectFailure(pool().Close(), StatusCode::kFailedPrecondition, "1 graph that captured with the pool");
  EXPECT_EQ(pool().Trim(0).value(), 0u) << "a registered segment stays in any case";
  EXPECT_EQ(registered(), 1u);
  EXPECT_EQ(driver().cuda.cuGraphDestroy(graph), CUDA_SUCCESS);
  ExpectOk({pool().mode().Deregister(communicator())});
  EXPECT_EQ(registered(), 0u);
}

TEST_F(FixedRegistration, DoesNotGrowInACapture) {
  ExpectOk({pool().mode().Reserve(4 * kMiB)});
  ExpectOk({pool().mode().RegisterWith(communicator())});
  AnnouncedCapture capture;
  ExpectOk({capture.Begin(runtime(), pool().handle(), rank().stream)});
  ExpectFailure(pool().Allocate(64 * kMiB, KeyOfStream(rank().stream, rank().number)).status(),
                StatusCode::kOutOfMemory, "is registered, does not grow there");
  ExpectOk({capture.End()});
  capture.DestroyGraph();
  ExpectOk({pool().mode().Deregister(communicator())});
}

}  // namespace
}  // namespace commpool::internal::testing
