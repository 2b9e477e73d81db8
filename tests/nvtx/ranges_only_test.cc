// A tool that takes ranges and no memory: blocks take the way through the caches.
#include "tests/nvtx/listener_fixture.h"

namespace commpool::internal::testing {
namespace {

class RangesOnly : public ListenerTest {};

TEST_F(RangesOnly, TheToolHearsCallsAndNoMemory) {
  const PoolHandle pool = Create(Configured("gradients"));
  const CUdeviceptr block = Allocate(pool, 1000);
  EXPECT_TRUE(heard().heaps.empty());
  EXPECT_TRUE(heard().regions.empty());
  EXPECT_TRUE(Get(pool).mode().Reserve(8 * kMiB).ok());
  EXPECT_FALSE(heard().lines.empty());
  Free(block);
}

}  // namespace
}  // namespace commpool::internal::testing
