// A symmetric pool's answers with several versions of NCCL: BUILD runs this with each.
#include "src/library/base/bytes.h"
#include "src/library/pool/runtime.h"
#include "tests/registration/rank_group.h"

namespace commpool::internal::testing {
namespace {

class NcclVersions : public DriverTest {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_NCCL();
    COMMPOOL_REQUIRE_DEVICES(2);
  }

  bool HasWindows() const { return driver().nccl.version >= 22700; }
  bool HasHostWindows() const { return driver().nccl.version >= 23003; }

  // A pool with these options on both ranks, grown once.
  Statuses Grow(RankGroup& group, Runtime& runtime, Placement::Kind kind) {
    return group.Run([&](Rank& rank) {
      PoolConfiguration configuration;
      configuration.backing.placement.kind = kind;
      configuration.backing.placement.device = rank.number;
      configuration.backing.placement.numa_node = kind == Placement::Kind::kHostNuma ? 0 : -1;
      configuration.home = rank.communicator;
      configuration.deadline_ms = 20000;
      Result<PoolHandle> made = runtime.CreatePool(configuration);
      if (!made.ok()) return made.status();
      Pool& pool = *runtime.pools().Find(*made).value();
      Status status = pool.mode().Reserve(32 * kMiB);
      EXPECT_EQ(pool.Statistics().registered_segments, status.ok() ? 1u : 0u);
      EXPECT_TRUE(pool.Close().ok());
      return status;
    });
  }
};

TEST_F(NcclVersions, WindowsBeginWith2_27) {
  RankGroup group(2);
  Runtime runtime(shared_driver());
  const uint64_t mappings = CallCount("cuMemMap");
  const Statuses statuses = Grow(group, runtime, Placement::Kind::kDevice);
  if (HasWindows()) {
    ExpectOk(statuses);
    // Before 2.30.3 a window spans one handle, so a segment of any size has one.
    EXPECT_EQ(CallCount("cuMemMap") - mappings, OnEmulator() ? 2u : 0u);
    return;
  }
  ExpectFailure(statuses, StatusCode::kNotSupported, "rank 0 cannot create: windows need NCCL 2.27");
  ExpectFailure(statuses, StatusCode::kNotSupported, FormatNcclVersion(driver().nccl.version));
}

TEST_F(NcclVersions, WindowsOverHostMemoryBeginWith2_30_3) {
  RankGroup group(2);
  Runtime runtime(shared_driver());
  const Statuses statuses = Grow(group, runtime, Placement::Kind::kHostNuma);
  if (HasHostWindows()) return ExpectOk(statuses);
  ExpectFailure(statuses, StatusCode::kNotSupported, "rank 0 cannot create: windows");
  ExpectFailure(statuses, StatusCode::kNotSupported, FormatNcclVersion(driver().nccl.version));
  if (HasWindows()) ExpectFailure(statuses, StatusCode::kNotSupported, "need NCCL 2.30.3");
}

}  // namespace
}  // namespace commpool::internal::testing
