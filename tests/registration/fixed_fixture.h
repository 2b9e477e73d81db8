// A fixed pool, and a communicator of one rank to register local buffers with.
#pragma once

#include <memory>
#include <optional>

#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {

class FixedRegistration : public DriverTest {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_NCCL();
    if (!driver().nccl.has_local_registration()) GTEST_SKIP() << driver().nccl.WhyNoLocalRegistration();
    group_.emplace(1);
    current_.emplace(driver(), rank().context);
    runtime_ = std::make_unique<Runtime>(shared_driver());
    PoolConfiguration configuration;
    configuration.name = "fixed";
    configuration.streams = Streams::kOutlive;
    handle_ = runtime_->CreatePool(configuration).value();
    pool_ = runtime_->pools().Find(handle_).value();
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
  PoolHandle handle() const { return handle_; }
  Pool& pool() { return *pool_; }
  ncclComm_t communicator() { return rank().communicator; }
  CUdeviceptr Allocate(uint64_t bytes) {
    return pool().Allocate(bytes, KeyOfStream(rank().stream, rank().number)).value();
  }
  uint64_t registered() { return pool().Statistics().registered_segments; }
  uint64_t pending() { return pool().Statistics().pending_segments; }

 private:
  std::optional<RankGroup> group_;
  std::optional<ContextGuard> current_;
  std::unique_ptr<Runtime> runtime_;
  PoolHandle handle_ = 0;
  std::shared_ptr<Pool> pool_;
};

}  // namespace commpool::internal::testing
