// Devices without a link are refused as peers, with the reason; the pool is as before.
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class UnlinkedPeers : public PoolTest {
 protected:
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("it needs devices without a link"); }
  static void ExpectReason(const Status& status) {
    ExpectFailure(status, StatusCode::kNotSupported, "device 1 cannot reach the memory of device 0");
  }
};

TEST_F(UnlinkedPeers, AreRefusedByGrant) {
  const PoolHandle pool = Create(Configured("alone"));
  ExpectReason(Get(pool).segments().peers.Grant({1}));
  EXPECT_EQ(Get(pool).segments().peers.Revoke({1}).code(), StatusCode::kNotFound);
  Allocate(pool, kMiB);
  ExpectReason(Get(pool).segments().peers.Grant({1}));
}

TEST_F(UnlinkedPeers, AreRefusedAsOptions) {
  ExpectReason(runtime().CreatePool(ConfiguredWith({.name = "alone", .peers = {1}})).status());
  EXPECT_TRUE(runtime().pools().All().empty());
}

}  // namespace
}  // namespace commpool::internal::testing
