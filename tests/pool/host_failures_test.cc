// A free succeeds even when the host has no memory.
#include "tests/base/empty_system.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class EmptyHost : public PoolTest {
 protected:
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("a driver needs memory of the host itself"); }
};

// Only blocks without other streams: the emulated driver needs the same host's memory.
TEST_F(EmptyHost, FreesBlocks) {
  const PoolHandle pool = Create(Configured("freeing"));
  const TestStream stream;
  std::vector<CUdeviceptr> blocks;
  for (const uint64_t bytes : {uint64_t{700}, 3 * kMiB, uint64_t{701}, 5 * kMiB, 300 * kKiB}) {
    blocks.push_back(runtime().AllocateFrom(pool, bytes, stream.get()).value());
  }
  for (const CUdeviceptr block : blocks) {
    const SystemIsEmpty empty;
    ASSERT_TRUE(runtime().Free(block).ok());
  }
  Get(pool).CheckInvariants();
  EXPECT_EQ(CountersOf(pool).allocated_blocks.current, 0u);
}

}  // namespace
}  // namespace commpool::internal::testing
