// Symmetric pools and further communicators: register_with, deregister, abandon.
#include "tests/registration/nonblocking_ranks.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class SymmetricRegistration : public SymmetricTest {
 protected:
  void SetUp() override {
    SymmetricTest::SetUp();
    if (IsSkipped()) return;
    second_ = group().ConnectFrom(1);  // without rank 0
  }
  void TearDown() override {
    if (!second_.empty()) group().Destroy(second_);
    SymmetricTest::TearDown();
  }

  ncclComm_t SecondOf(const Rank& rank) const { return second_[static_cast<size_t>(rank.number)]; }
  Statuses RegisterSecond() {
    return Run([&](Rank& rank) { return PoolOf(rank).mode().RegisterWith(SecondOf(rank)); });
  }
  Statuses DeregisterSecond() {
    return Run([&](Rank& rank) { return PoolOf(rank).mode().Deregister(SecondOf(rank)); });
  }
  void ForgetSecond() { second_.assign(second_.size(), nullptr); }

 private:
  std::vector<ncclComm_t> second_;
};

TEST_F(SymmetricRegistration, ExistingAndLaterSegmentsGetAWindowOnEachCommunicator) {
  CreateAndReserve(2 * kMiB);
  ExpectOk(RegisterSecond());
  EXPECT_EQ(RegisteredSegments(0), 1u);
  EXPECT_EQ(RegisteredSegments(1), 2u);
  ExpectOk(Reserve(4 * kMiB));
  EXPECT_EQ(RegisteredSegments(0), 2u);
  EXPECT_EQ(RegisteredSegments(1), 4u);

  const std::vector<CUdeviceptr> blocks = Allocate(4 * kMiB);
  Rank& rank = group()[1];
  const WindowPlace home = runtime().windows().Find(rank.communicator, blocks[1]).value();
  const WindowPlace other = runtime().windows().Find(SecondOf(rank), blocks[1]).value();
  EXPECT_NE(home.window, other.window);
  EXPECT_EQ(home.offset, other.offset);
  EXPECT_FALSE(runtime().windows().Find(SecondOf(rank), blocks[0]));
  Free(blocks);

  ExpectOk(DeregisterSecond());
  EXPECT_EQ(RegisteredSegments(1), 2u);
}

TEST_F(SymmetricRegistration, ASecondRegisterWithDoesNothing) {
  CreateAndReserve(2 * kMiB);
  ExpectOk(RegisterSecond());
  const uint64_t calls = CallCount("ncclCommWindowRegister");
  ExpectOk(RegisterSecond());
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().RegisterWith(rank.communicator); }));
  EXPECT_EQ(CallCount("ncclCommWindowRegister"), calls);
  EXPECT_EQ(RegisteredSegments(1), 2u);
  ExpectOk(DeregisterSecond());
  ExpectOk(DeregisterSecond());  // nor does a second deregister
}

TEST_F(SymmetricRegistration, AFailedRegisterWithIsUndone) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  CreateAndReserve(2 * kMiB);
  {
    const InjectedFault all({.call = "ncclCommWindowRegister", .result = ncclInternalError, .count = last()});
    ExpectFailure(RegisterSecond(), StatusCode::kCommunicatorError, "registering with a communicator failed on rank 1");
  }
  EXPECT_EQ(RegisteredSegments(1), 1u);
  ExpectOk(Reserve(4 * kMiB));  // with home alone
  EXPECT_EQ(RegisteredSegments(1), 2u);
}

TEST_F(SymmetricRegistration, ACommunicatorOfAnotherDeviceFailsOnAll) {
  ExpectOk(Create());
  ExpectFailure(Run([&](Rank& rank) {
                  return PoolOf(rank).mode().RegisterWith(rank.number == 0 ? group()[1].communicator : nullptr);
                }),
                StatusCode::kInvalidArgument, "rank 0 cannot register_with: the communicator is of device 1");
}

TEST_F(SymmetricRegistration, AnAbandonedCommunicatorIsCalledNoMore) {
  COMMPOOL_REQUIRE_EMULATOR("an abort would leave windows to NCCL");
  AllowLeak("physical memory");
  CreateAndReserve(2 * kMiB);
  ExpectOk(RegisterSecond());
  ExpectOk(Run([&](Rank& rank) {
    const ncclComm_t second = SecondOf(rank);
    if (second == nullptr) return Status();
    EXPECT_EQ(driver().nccl.ncclCommAbort(second), ncclSuccess);
    return Status();
  }));
  const uint64_t calls = CallCount("*");
  for (int rank = 0; rank <= last(); ++rank) {
    ExpectOk({PoolOf(group()[rank]).mode().AbandonCommunicator(SecondOf(group()[rank]), CommunicatorLife::kEnded)});
  }
  EXPECT_EQ(CallCount("*"), calls);
  EXPECT_EQ(RegisteredSegments(1), 1u);
  ForgetSecond();
  ExpectOk(Reserve(4 * kMiB));
}

TEST_F(SymmetricRegistration, APoolWithoutItsHomeRegistrationGrowsUnregistered) {
  CreateAndReserve(2 * kMiB);
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().Deregister(rank.communicator); }));
  EXPECT_EQ(RegisteredSegments(0), 0u);
  ExpectOk(Reserve(4 * kMiB));
  EXPECT_EQ(RegisteredSegments(0), 0u);
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().RegisterWith(rank.communicator); }));
  EXPECT_EQ(RegisteredSegments(0), 2u);
}

// Nonblocking communicators (config.blocking = 0): registration polls every call until its end.

class Nonblocking : public SymmetricTest {
 protected:
  std::vector<ncclComm_t> Connect() { return ConnectNonblocking(group()); }
};

TEST_F(Nonblocking, AHomeServesEveryCollectiveCall) {
  std::vector<ncclComm_t> home = Connect();
  CreateAndReserve(2 * kMiB, [&](const Rank& rank, PoolConfiguration& configuration) {
    configuration.home = home[static_cast<size_t>(rank.number)];
  });
  EXPECT_EQ(RegisteredSegments(0), 1u);
  ExpectOk(Trim(0));
  ExpectOk(Close());
  group().Destroy(home);
}

TEST_F(Nonblocking, AFurtherCommunicatorIsMetRegisteredAndLeft) {
  CreateAndReserve(2 * kMiB);
  std::vector<ncclComm_t> second = Connect();
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().RegisterWith(second[static_cast<size_t>(rank.number)]); }));
  EXPECT_EQ(RegisteredSegments(0), 2u);
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().Deregister(second[static_cast<size_t>(rank.number)]); }));
  group().Destroy(second);
}

}  // namespace
}  // namespace commpool::internal::testing
