// The C ABI on several ranks: options that one rank refuses fail the pool's creation on all ranks at once.
#include <array>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "commpool/commpool.h"
#include "tests/registration/rank_group.h"

namespace commpool::internal::testing {
namespace {

class RefusedOptions : public DriverTest {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_NCCL();
    if (!driver().nccl.has_windows()) GTEST_SKIP() << driver().nccl.WhyNoWindows();
    COMMPOOL_REQUIRE_DEVICES(2);
    AllowLeak("");  // the library's runtime lives as long as the process
    ASSERT_EQ(commpool_initialize(COMMPOOL_DRIVER_AUTO, COMMPOOL_MEASURE_NOTHING), COMMPOOL_OK)
        << commpool_last_error();
    group_.emplace(2);
  }

  static commpool_pool_options OptionsOf(const Rank& rank) {
    commpool_pool_options options;
    commpool_pool_options_init(&options);
    options.device = rank.number;
    options.symmetric_across = rank.communicator;
    options.deadline_ms = 5000;
    return options;
  }
  // Each rank's result where rank 1 creates with `spoil`ed options. The output pointer of rank `null_output` is null.
  Statuses Create(const std::function<void(commpool_pool_options&)>& spoil, int null_output = -1) {
    return group_->Run([&](Rank& rank) {
      commpool_pool_options options = OptionsOf(rank);
      if (rank.number == 1) spoil(options);
      commpool_pool pool = 0;
      const commpool_status status = commpool_pool_create(&options, rank.number == null_output ? nullptr : &pool);
      EXPECT_EQ(pool, 0u);
      return Told(status);
    });
  }
  void ExpectRefused(const std::function<void(commpool_pool_options&)>& spoil, const std::string& why) {
    ExpectFailure(Create(spoil), StatusCode::kInvalidArgument, "rank 1 cannot create: pool options: " + why);
  }
  // Pools that nothing spoils, and a call for each of them.
  void CreatePools() {
    ExpectOk(group_->Run([&](Rank& rank) {
      const commpool_pool_options options = OptionsOf(rank);
      return Told(commpool_pool_create(&options, &pools_[rank.index()]));
    }));
  }
  Statuses OnEach(const std::function<commpool_status(const Rank&, commpool_pool)>& call) {
    return group_->Run([&](Rank& rank) { return Told(call(rank, pools_[rank.index()])); });
  }
  void EndPools() {
    ExpectOk(OnEach([](const Rank&, commpool_pool pool) { return commpool_pool_close(pool); }));
    ExpectOk(OnEach([](const Rank&, commpool_pool pool) { return commpool_pool_destroy(pool); }));
  }
  // Even a number that is no enumerator.
  template <typename Word>
  static void Put(int32_t number, Word* word) {
    static_assert(sizeof(Word) == sizeof(number));
    std::memcpy(word, &number, sizeof(number));
  }
  static Status Told(commpool_status status) {
    return status == COMMPOOL_OK ? Status() : Status(static_cast<StatusCode>(status), commpool_last_error());
  }

  std::optional<RankGroup> group_;
  std::array<commpool_pool, 2> pools_{};
};

TEST_F(RefusedOptions, AreToldToAllRanks) {
  ExpectRefused([](commpool_pool_options& options) { options.alignment_bytes = 3; }, "alignment_bytes 3");
  ExpectRefused([](commpool_pool_options& options) { options.deadline_ms = 0; }, "deadline_ms is 0");
  ExpectRefused([](commpool_pool_options& options) { options.mode = COMMPOOL_MODE_EXPANDABLE; }, "mode EXPANDABLE");
}

TEST_F(RefusedOptions, AreToldWhicheverOptionIsWrong) {
  using Options = commpool_pool_options;
  const std::vector<std::pair<const char*, std::function<void(Options&)>>> refused = {
      {"device -1", [](Options& options) { options.device = -1; }},
      {"device 999", [](Options& options) { options.device = 999; }},
      {"device 0", [](Options& options) { options.device = 0; }},
      {"backing 99", [](Options& options) { Put(99, &options.backing); }},
      {"user", [](Options& options) { options.backing = COMMPOOL_BACKING_USER; }},
      {"cuda", [](Options& options) { options.backing = COMMPOOL_BACKING_CUDA; }},
      {"location 2", [](Options& options) { Put(2, &options.location); }},
      {"host memory", [](Options& options) { options.location = COMMPOOL_LOCATION_HOST_NUMA; }},
      {"numa_node -2", [](Options& options) { options.numa_node = -2; }},
      {"frees 2", [](Options& options) { Put(2, &options.frees); }},
      {"moves 2", [](Options& options) { Put(2, &options.moves); }},
      {"peers is null", [](Options& options) { options.peer_count = 1; }},
      {"granularity_bytes 3", [](Options& options) { options.granularity_bytes = 3; }},
      {"limit_bytes is 0", [](Options& options) { options.limit_bytes = 0; }},
      {"segment_bytes", [](Options& options) { options.segment_bytes = UINT64_MAX; }},
      {"given", [](Options& options) { options.given = UINT64_MAX - 1; }},
      {"'2 apples' is no size",
       [](Options& options) {
         options.name = "limit '2 apples' is no size";  // as in a program that refuses its own options
         options.given = UINT64_MAX;
       }},
  };
  for (const auto& [named, spoil] : refused) {
    SCOPED_TRACE(named);
    for (const Status& status : Create(spoil)) {
      ExpectFailure(status, status.code(), "rank 1");
      ExpectFailure(status, status.code(), named);
    }
  }
}

// One thread owns two ranks.
TEST_F(RefusedOptions, OfOneOfSeveralPoolsAreToldToAllRanks) {
  COMMPOOL_REQUIRE_DEVICES(3);
  RankGroup three(3);
  const auto create = [&](std::array<commpool_pool_options, 2>& of_two, commpool_pool* output) {
    return RunThreads(2, [&](int thread) {
      commpool_pool pool = 0;
      const commpool_pool_options alone = OptionsOf(three[2]);
      return Told(thread == 0 ? commpool_pools_create(of_two.data(), of_two.size(), output)
                              : commpool_pool_create(&alone, &pool));
    });
  };
  std::array<commpool_pool_options, 2> of_two = {OptionsOf(three[0]), OptionsOf(three[1])};
  ExpectFailure(create(of_two, nullptr), StatusCode::kInvalidArgument, "rank 0 cannot create: options or the output");
  // Nobody may read the home of a struct that was never initialised.
  of_two[1].struct_bytes -= 8;
  of_two[1].symmetric_across = reinterpret_cast<ncclComm_t>(8);
  EXPECT_EQ(commpool_pools_create(of_two.data(), of_two.size(), pools_.data()), COMMPOOL_INVALID_ARGUMENT);
}

// One rank made its communicator on another device than the pool's.
TEST_F(RefusedOptions, AreToldInARehomeToo) {
  COMMPOOL_REQUIRE_DEVICES(3);
  CreatePools();
  std::array<ncclComm_t, 2> others{};
  ncclUniqueId id;
  ASSERT_EQ(driver().nccl.ncclGetUniqueId(&id), ncclSuccess);
  const PrimaryContext elsewhere = PrimaryContext::Retain(driver(), 2).value();
  ExpectOk(OnEach([&](const Rank& rank, commpool_pool pool) {
    const ContextGuard current(driver(), rank.number == 1 ? elsewhere : rank.context);
    EXPECT_EQ(driver().nccl.ncclCommInitRank(&others[rank.index()], 2, id, rank.number), ncclSuccess);
    return commpool_pool_deregister(pool, rank.communicator);
  }));
  ExpectFailure(
      OnEach([&](const Rank& rank, commpool_pool pool) { return commpool_pool_rehome(pool, others[rank.index()]); }),
      StatusCode::kInvalidArgument, "rank 1 cannot rehome: the communicator is of device 2");
  ExpectOk(OnEach([](const Rank& rank, commpool_pool pool) { return commpool_pool_rehome(pool, rank.communicator); }));
  EndPools();
  for (const ncclComm_t other : others) EXPECT_EQ(driver().nccl.ncclCommDestroy(other), ncclSuccess);
}

// One rank passes a wrong number for sleep.
TEST_F(RefusedOptions, AreToldInASleepToo) {
  CreatePools();
  ExpectFailure(OnEach([](const Rank& rank, commpool_pool pool) {
                  // A number that is no enumerator; C++ forbids making one.
                  const auto sleep = reinterpret_cast<commpool_status (*)(const commpool_pool*, size_t, int, int)>(
                      &commpool_pools_sleep);
                  return sleep(&pool, 1, rank.number == 1 ? 3 : 0, COMMPOOL_GRAPHS_DISCARDED);
                }),
                StatusCode::kInvalidArgument, "sleep: keep 3 is none of DISCARD, HOST");
  EndPools();
}

TEST_F(RefusedOptions, AreToldForANullOutputToo) {
  ExpectFailure(Create([](commpool_pool_options&) {}, 0), StatusCode::kInvalidArgument, "rank 0 cannot create: ");
}

}  // namespace
}  // namespace commpool::internal::testing
