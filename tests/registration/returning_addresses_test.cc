// A pool's new segment lies where an old one did: nothing that held for the old one holds for it.
#include "tests/pool/announced_capture.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kBytes = 32 * kMiB;

class ReturningFixed : public DriverTest {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_NCCL();
    if (!driver().nccl.has_local_registration()) GTEST_SKIP() << driver().nccl.WhyNoLocalRegistration();
    group_.emplace(1);
    current_.emplace(driver(), rank().context);
    runtime_ = std::make_unique<Runtime>(shared_driver());
    PoolConfiguration configuration;
    configuration.name = "returning";
    handle_ = runtime_->CreatePool(configuration).value();
    pool_ = runtime_->pools().Find(handle_).value();
    other_ = pool_->Allocate(2 * kMiB, KeyOfStream(rank().stream)).value();
  }
  void TearDown() override {
    if (!group_) return;
    ExpectOk({pool_->Free(other_), pool_->Close()});
    pool_.reset();
    runtime_.reset();
    current_.reset();
    group_.reset();
  }

  Rank& rank() { return (*group_)[0]; }
  Pool& pool() { return *pool_; }
  // Where a segment that the pool grows by lies; it is free again.
  CUdeviceptr AddressOfGrowth() {
    const CUdeviceptr block = pool().Allocate(kBytes, KeyOfStream(rank().stream)).value();
    ExpectOk({pool().Free(block)});
    return block;
  }

  std::optional<RankGroup> group_;
  std::optional<ContextGuard> current_;
  std::unique_ptr<Runtime> runtime_;
  PoolHandle handle_ = 0;
  std::shared_ptr<Pool> pool_;
  CUdeviceptr other_ = 0;  // lives: a pool without memory keeps no addresses
};

TEST_F(ReturningFixed, WhatWasRegisteredThereIsNotAgain) {
  ExpectOk({pool().RegisterWith(rank().communicator)});
  const CUdeviceptr before = AddressOfGrowth();
  EXPECT_EQ(pool().RegisterPending().value(), 1u);
  EXPECT_EQ(pool().Statistics().registered_segments, 2u);
  EXPECT_EQ(pool().Trim(0).value(), 0u) << "what is registered stays";
  const uint64_t deregistered = CallCount("ncclCommDeregister");
  ExpectOk({pool().Deregister(rank().communicator)});
  EXPECT_EQ(CallCount("ncclCommDeregister") - deregistered, 2u);
  ASSERT_EQ(pool().Trim(0).value(), kBytes);

  ExpectOk({pool().RegisterWith(rank().communicator)});
  const uint64_t registered = CallCount("ncclCommRegister");
  EXPECT_EQ(AddressOfGrowth(), before);
  EXPECT_EQ(pool().Statistics().registered_segments, 1u) << "the other";
  EXPECT_EQ(pool().Statistics().pending_segments, 1u);
  EXPECT_EQ(pool().RegisterPending().value(), 1u);
  EXPECT_EQ(CallCount("ncclCommRegister") - registered, 1u);
  ExpectOk({pool().Deregister(rank().communicator)});
}

TEST_F(ReturningFixed, WhatALiveGraphUsesDoesNotReturn) {
  ExpectOk({pool().Reserve(kBytes)});
  AnnouncedCapture capture;
  ExpectOk({capture.Begin(*runtime_, handle_, rank().stream)});
  const CUdeviceptr captured = pool().Allocate(kBytes, KeyOfStream(rank().stream)).value();
  ExpectOk({pool().Free(captured)});
  ExpectOk({capture.End()});
  EXPECT_EQ(pool().Trim(0).value(), 0u);
  EXPECT_NE(AddressOfGrowth(), captured);
  EXPECT_EQ(pool().Trim(0).value(), kBytes);
  capture.DestroyGraph();
  EXPECT_EQ(pool().Trim(0).value(), kBytes);
}

TEST_F(ReturningFixed, AnotherPoolHasItsOwn) {
  const CUdeviceptr before = AddressOfGrowth();
  ASSERT_EQ(pool().Trim(0).value(), kBytes);
  PoolConfiguration configuration;
  configuration.name = "other";
  const std::shared_ptr<Pool> other = runtime_->pools().Find(runtime_->CreatePool(configuration).value()).value();
  const CUdeviceptr block = other->Allocate(kBytes, KeyOfStream(rank().stream)).value();
  EXPECT_NE(block, before);
  EXPECT_EQ(AddressOfGrowth(), before);
  ExpectOk({other->Free(block)});
  ExpectOk({other->Close()});
}

}  // namespace
}  // namespace commpool::internal::testing
