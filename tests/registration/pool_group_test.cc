// One thread owns every rank of a communicator (ncclCommInitAll): one call for all of its pools.
#include "commpool/pool_group.h"

#include <thread>

#include "src/library/driver/handles.h"
#include "tests/driver/emulator_fixture.h"
#include "tests/registration/nothing_unseen.h"

namespace commpool::internal::testing {
namespace {

constexpr size_t kRanks = 4;

// The library as a program sees it, and the functions of the driver and NCCL.
class OneThread : public DriverTest {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_NCCL();
    if (!driver().nccl.has_windows()) GTEST_SKIP() << driver().nccl.WhyNoWindows();
    COMMPOOL_REQUIRE_DEVICES(static_cast<int>(kRanks));
    AllowLeak("primary context");  // the library's runtime lives as long as the process
    AllowLeak("event");
    for (size_t rank = 0; rank < kRanks; ++rank) {
      contexts_.push_back(PrimaryContext::Retain(driver(), static_cast<int>(rank)).value());
    }
    ASSERT_EQ(driver().nccl.ncclCommInitAll(home_.data(), kRanks, nullptr), ncclSuccess);
  }
  void TearDown() override { Destroy(home_); }

  std::vector<PoolOptions> Options() const {
    std::vector<PoolOptions> options(kRanks);
    for (size_t rank = 0; rank < kRanks; ++rank) {
      options[rank].device = static_cast<int>(rank);
      options[rank].symmetric_across = home_[rank];
      options[rank].deadline_ms = 20000;
      options[rank].name = "gradients";  // the same on every rank, because ranks compare names
    }
    return options;
  }
  std::vector<ncclComm_t> Connect(const std::vector<int>& devices) const {
    std::vector<ncclComm_t> made(devices.size());
    std::vector<ncclComm_t> all(kRanks, nullptr);
    EXPECT_EQ(driver().nccl.ncclCommInitAll(made.data(), static_cast<int>(devices.size()), devices.data()),
              ncclSuccess);
    for (size_t place = 0; place < devices.size(); ++place) all[static_cast<size_t>(devices[place])] = made[place];
    return all;
  }
  void Destroy(const std::vector<ncclComm_t>& communicators) const {
    for (const ncclComm_t communicator : communicators) {
      if (communicator != nullptr) {
        EXPECT_EQ(driver().nccl.ncclCommDestroy(communicator), ncclSuccess);
      }
    }
  }
  static std::vector<Buffer> AllocateOnEach(PoolGroup& pools) {
    std::vector<Buffer> buffers;
    for (size_t place = 0; place < pools.size(); ++place) {
      buffers.push_back(pools[place].allocate(MiB(1), nullptr).value());
    }
    return buffers;
  }
  static void ExpectAsleep(PoolGroup& pools) {
    for (size_t rank = 0; rank < pools.size(); ++rank) {
      const Statistics statistics = pools[rank].stats().value();
      EXPECT_GT(statistics.asleep_bytes, 0u);
      EXPECT_EQ(statistics.asleep_bytes, statistics.reserved_bytes.current);
      EXPECT_EQ(statistics.registered_segments, 0u);
    }
  }

  std::vector<PrimaryContext> contexts_;
  std::vector<ncclComm_t> home_ = std::vector<ncclComm_t>(kRanks, nullptr);
};

TEST_F(OneThread, MakesGrowsRegistersAndClosesAllOfItsPoolsTogether) {
  const ContextGuard current(driver(), contexts_[2]);
  PoolGroup pools = PoolGroup::create(Options()).value();
  ASSERT_EQ(pools.size(), kRanks);
  ExpectOk(pools.reserve(MiB(4)));
  {
    const std::vector<Buffer> buffers = AllocateOnEach(pools);
    const uint64_t offset = window_of(buffers[0].data(), home_[0]).value().offset;
    for (size_t rank = 1; rank < kRanks; ++rank) {
      EXPECT_EQ(window_of(buffers[rank].data(), home_[rank]).value().offset, offset);
    }
  }
  EXPECT_EQ(pools.reclaim().value(), std::vector<std::uint64_t>(kRanks, MiB(1)));

  const std::vector<ncclComm_t> pair = Connect({1, 3});
  ExpectOk(pools.register_with(pair));
  EXPECT_EQ(pools[1].stats().value().registered_segments, 2u);
  EXPECT_EQ(pools[2].stats().value().registered_segments, 1u);
  ExpectOk(pools.deregister(pair));
  EXPECT_EQ(pools.trim().value(), std::vector<std::uint64_t>(kRanks, MiB(4)));
  ExpectOk(pools.close());
  Destroy(pair);

  CUcontext now = nullptr;
  EXPECT_EQ(driver().cuda.cuCtxGetCurrent(&now), CUDA_SUCCESS);
  EXPECT_EQ(now, contexts_[2].get()) << "the caller's device is what it was";
}

TEST_F(OneThread, MayHaveSeveralPoolsOfEachRankInOneCall) {
  std::vector<PoolOptions> options = Options();
  for (const PoolOptions& first : Options()) {
    options.push_back(first);
    options.back().name = "activations";
  }
  PoolGroup pools = PoolGroup::create(options).value();
  ASSERT_EQ(pools.size(), 2 * kRanks);
  ExpectOk(pools.reserve(MiB(4)));
  {
    const std::vector<Buffer> buffers = AllocateOnEach(pools);
    for (size_t place = 0; place < pools.size(); ++place) {
      // Pools of one rank have their windows on one communicator, at the same offset on all ranks for the same pool.
      const uint64_t offset = window_of(buffers[place].data(), home_[place % kRanks]).value().offset;
      const size_t of_rank_0 = place / kRanks * kRanks;
      EXPECT_EQ(window_of(buffers[of_rank_0].data(), home_[0]).value().offset, offset);
    }
  }
  EXPECT_EQ(pools.reclaim().value(), std::vector<std::uint64_t>(2 * kRanks, MiB(1)));
  ExpectOk(pools.verify());
  ExpectOk(pools.close());
}

TEST_F(OneThread, IsToldAtOnceToPassAllOfItsPools) {
  PoolGroup pools = PoolGroup::create(Options()).value();
  const auto refused = StatusCode::kFailedPrecondition;
  const std::string hint = "Pass all of them to one call";
  ExpectFailure(pools[0].reserve(MiB(2)), refused, hint);
  ExpectFailure(pools[1].reclaim().status(), refused, hint);
  ExpectFailure(pools[2].trim().status(), refused, hint);
  ExpectFailure(pools[3].register_with(nullptr), refused, hint);
  ExpectFailure(pools[0].deregister(nullptr), refused, hint);
  ExpectFailure(pools[0].close(), refused, hint);
  ExpectFailure(pools[1].sleep(), refused, hint);
  const commpool_pool some[] = {pools[0].handle(), pools[3].handle()};
  EXPECT_EQ(commpool_pools_reserve(some, 2, MiB(2)), COMMPOOL_FAILED_PRECONDITION);
  EXPECT_NE(std::string(commpool_last_error()).find("calls for 2 of them"), std::string::npos) << commpool_last_error();
  ExpectOk(pools.reserve(MiB(2)));  // no rank was left behind
  ExpectOk(pools.verify());
  ExpectOk(pools.close());
}

TEST_F(OneThread, PutsAllOfItsPoolsToSleepAndWakesThemTogether) {
  PoolGroup pools = PoolGroup::create(Options()).value();
  ExpectOk(pools.reserve(MiB(4)));
  {
    const std::vector<Buffer> buffers = AllocateOnEach(pools);
    const uint64_t offset = window_of(buffers[0].data(), home_[0]).value().offset;
    ExpectOk(pools.sleep(Keep::kHost));
    ExpectAsleep(pools);
    ExpectFailure(window_of(buffers[0].data(), home_[0]).status(), StatusCode::kNotFound, "");
    ExpectFailure(pools.reserve(MiB(8)), StatusCode::kFailedPrecondition, "is asleep: wake() it first");
    ExpectFailure(pools[2].wake(), StatusCode::kFailedPrecondition, "Pass all of them to one call");
    {
      const InjectedFault one({.call = "cuMemCreate", .result = CUDA_ERROR_OUT_OF_MEMORY, .skip = 2});
      ExpectFailure(pools.wake(), StatusCode::kOutOfMemory, "making memory to wake failed on rank ");
    }
    ExpectAsleep(pools);
    ExpectOk(pools.wake());
    for (size_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(pools[rank].stats().value().asleep_bytes, 0u);
      EXPECT_EQ(window_of(buffers[rank].data(), home_[rank]).value().offset, offset);
    }
  }
  ExpectOk(pools.close());
}

TEST_F(OneThread, MayLeaveEachPoolToAThreadOfItsOwn) {
  PoolGroup pools = PoolGroup::create(Options()).value();
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] { ExpectOk(pools[rank].reserve(MiB(2))); });
  }
  for (std::thread& thread : threads) thread.join();
  ExpectOk(pools.close());
}

TEST_F(OneThread, GetsAllPoolsOrNone) {
  std::vector<PoolOptions> options = Options();
  options[2].device = 0;
  ExpectFailure(PoolGroup::create(options).status(), StatusCode::kInvalidArgument, "rank 2 cannot create: ");
  options = Options();
  options[3].alignment_bytes = 3;
  ExpectFailure(PoolGroup::create(options).status(), StatusCode::kInvalidArgument, "alignment_bytes");
  ExpectFailure(PoolGroup::create({}).status(), StatusCode::kInvalidArgument, "no pool");
}

TEST_F(OneThread, HearsOfOneRanksFailure) {
  PoolGroup pools = PoolGroup::create(Options()).value();
  ExpectFailure(pools.reserve(0), StatusCode::kInvalidArgument, "reserve of 0 bytes");
  ExpectFailure(pools.register_with({}), StatusCode::kInvalidArgument, "4 pools and 0 communicators");
  ExpectFailure(pools.register_with({home_[0], home_[1], home_[2], nullptr}), StatusCode::kDisagreement,
                "some passed home, rank 3 passed null");
  ExpectFailure(pools.register_with({home_[1], home_[0], home_[2], home_[3]}), StatusCode::kInvalidArgument,
                "the communicator is of device 1, the pool of 0");
  ExpectOk(pools.close());
}

TEST_F(OneThread, PassesEachPoolOnce) {
  PoolGroup pools = PoolGroup::create(Options()).value();
  const commpool_pool twice[] = {pools[0].handle(), pools[0].handle()};
  uint64_t bytes[2] = {7, 7};
  EXPECT_EQ(commpool_pools_reserve(twice, 2, MiB(2)), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(commpool_pools_reserve(nullptr, 2, MiB(2)), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(commpool_pools_reserve(twice, 0, MiB(2)), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(commpool_pools_trim(twice, 2, 0, bytes), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(commpool_pools_register_with(twice, nullptr, 2), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(commpool_pools_create(nullptr, 1, nullptr), COMMPOOL_INVALID_ARGUMENT);
  const commpool_pool ended = 987654;
  EXPECT_EQ(commpool_pools_close(&ended, 1), COMMPOOL_NOT_FOUND);
  EXPECT_EQ(bytes[0], 7u) << "outputs are not written";
  ExpectOk(pools.close());
}

TEST_F(OneThread, MayCallForPoolsThatAreNotSymmetric) {
  PoolGroup pools = PoolGroup::create({{.device = 0}, {.device = 1}}).value();
  ExpectOk(pools.reserve(MiB(2)));
  ExpectOk(pools[0].reserve(MiB(4)));  // no rank waits for another
  ExpectOk(pools.close());
}

}  // namespace
}  // namespace commpool::internal::testing
