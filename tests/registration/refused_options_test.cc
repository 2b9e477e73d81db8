// The C ABI over several ranks: options that one rank refuses at once fail the pool's creation on all of them at once.
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
    ASSERT_EQ(commpool_initialize(COMMPOOL_DRIVER_AUTO), COMMPOOL_OK) << commpool_last_error();
    group_.emplace(2);
  }

  // What each rank gets where rank 1 creates with `spoil`ed options. The output pointer of `null_output` is null.
  Statuses Create(const std::function<void(commpool_pool_options&)>& spoil, int null_output = -1) {
    return group_->Run([&](Rank& rank) {
      commpool_pool_options options;
      commpool_pool_options_init(&options);
      options.device = rank.number;
      options.symmetric_across = rank.communicator;
      if (rank.number == 1) spoil(options);
      commpool_pool pool = 0;
      const commpool_status status = commpool_pool_create(&options, rank.number == null_output ? nullptr : &pool);
      EXPECT_EQ(pool, 0u);
      return Status(static_cast<StatusCode>(status), commpool_last_error());
    });
  }

  std::optional<RankGroup> group_;
};

TEST_F(RefusedOptions, AreHeardOfByAllRanks) {
  ExpectFailure(Create([](commpool_pool_options& options) { options.alignment_bytes = 3; }),
                StatusCode::kInvalidArgument, "rank 1 cannot create: pool options: alignment_bytes 3");
  ExpectFailure(Create([](commpool_pool_options& options) { options.deadline_ms = 0; }), StatusCode::kInvalidArgument,
                "rank 1 cannot create: pool options: deadline_ms is 0");
  ExpectFailure(Create([](commpool_pool_options& options) { options.mode = COMMPOOL_MODE_EXPANDABLE; }),
                StatusCode::kInvalidArgument, "rank 1 cannot create: pool options: mode EXPANDABLE");
}

TEST_F(RefusedOptions, OfANullOutputAreHeardOfToo) {
  ExpectFailure(Create([](commpool_pool_options&) {}, 0), StatusCode::kInvalidArgument, "rank 0 cannot create: ");
}

}  // namespace
}  // namespace commpool::internal::testing
