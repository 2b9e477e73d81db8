// Pools over host memory where the driver makes none on a NUMA node: BUILD lets it deny that.
#include <cstring>

#include "tests/pool/pool_fixture.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

class HostMemory : public PoolTest {
 protected:
  static PoolConfiguration OnHost() {
    PoolConfiguration configuration = Configured("host");
    configuration.backing.placement = {Placement::Kind::kHostNuma, 0, 1};
    return configuration;
  }
  static void ExpectRefused(const Status& status, const std::string& part) {
    ExpectFailure(status, StatusCode::kNotSupported, part);
  }
};

TEST_F(HostMemory, ServesCpuAndDevice) {
  const PoolHandle pool = Create(OnHost());
  const CUdeviceptr block = Allocate(pool, 3 * kMiB);
  std::memset(reinterpret_cast<void*>(block), 0x3c, 3 * kMiB);
  ExpectBytes(nullptr, block, 3 * kMiB, 0x3c);
  Free(block);
  EXPECT_EQ(Get(pool).Trim(0).value(), 8 * kMiB);
}

TEST_F(HostMemory, OnADefaultStreamIsThatOfTheCurrentDeviceAlone) {
  const PoolHandle pool = Create(OnHost());
  const PrimaryContext other = PrimaryContext::Retain(driver(), 1).value();
  const ContextGuard current(driver(), other);
  const CUdeviceptr block = Allocate(pool, 3 * kMiB);
  Free(block);
  EXPECT_EQ(CountersOf(pool).pending_bytes, 0u) << "device 0's default stream has no use of it";
  EXPECT_EQ(Allocate(pool, 3 * kMiB), block);
}

TEST_F(HostMemory, SaysWhatItIsAndWhyItIsNothingBetter) {
  const MemoryFacts facts = Get(Create(OnHost())).segments().backing->Facts();
  EXPECT_EQ(facts.what, "host NUMA node 1, bound and registered, no handle, node not proven");
  EXPECT_NE(facts.why.find("CUDA_ERROR_NOT_PERMITTED"), std::string::npos) << facts.why;
}

TEST_F(HostMemory, IsOpenToEveryDeviceWithoutAGrant) {
  PoolConfiguration configuration = OnHost();
  configuration.peers = {1, 2};
  Pool& pool = Get(Create(configuration));
  EXPECT_TRUE(pool.segments().peers.Grant({3}).ok());
  EXPECT_EQ(pool.segments().peers.Revoke({3}).code(), StatusCode::kFailedPrecondition);
}

TEST_F(HostMemory, NeitherMovesNorSleepsNorIsShared) {
  PoolConfiguration expandable = OnHost();
  expandable.mode = Mode::kExpandable;
  ExpectRefused(runtime().CreatePool(expandable).status(), "host NUMA node 1, bound and registered");
  Pool& pool = Get(Create(OnHost()));
  ExpectRefused(SleepAlone(pool, {}), "bound and registered, no handle, node not proven) cannot leave its addresses");
  ExpectRefused(pool.segments().exporter.Ticket(Imports::kRefuseSleep).status(),
                "no handle that another process can import");
}

}  // namespace
}  // namespace commpool::internal::testing
