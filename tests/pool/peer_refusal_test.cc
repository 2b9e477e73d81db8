// Devices without a link are refused as peers, with the reason; the pool is as before.
#include <cstdlib>

#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class UnlinkedPeers : public PoolTest {
 protected:
  static void SetUpTestSuite() { setenv("COMMPOOL_EMULATOR", "devices=2,links=none", 1); }
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("it needs devices without a link"); }
  static void ExpectReason(const Status& status) {
    ExpectFailure(status, StatusCode::kNotSupported, "device 1 cannot reach the memory of device 0");
  }
};

TEST_F(UnlinkedPeers, AreRefusedByGrant) {
  const PoolHandle pool = Create(Configured("alone"));
  ExpectReason(Get(pool).segments().peers.Grant({1}));
  EXPECT_EQ(Get(pool).segments().peers.Revoke({1}).code(), StatusCode::kNotFound);
  const CUdeviceptr address = runtime().AllocateFrom(pool, kMiB, nullptr).value();
  ExpectReason(Get(pool).segments().peers.Grant({1}));
  EXPECT_TRUE(runtime().Free(address).ok());
}

TEST_F(UnlinkedPeers, AreRefusedAsOptions) {
  PoolConfiguration configuration = Configured("alone");
  configuration.peers = {1};
  ExpectReason(runtime().CreatePool(configuration).status());
  EXPECT_TRUE(runtime().pools().All().empty());
}

}  // namespace
}  // namespace commpool::internal::testing
