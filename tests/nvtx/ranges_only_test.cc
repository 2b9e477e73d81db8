// A tool that takes ranges and no memory: blocks take the way through the caches.
#include "tests/nvtx/listener_fixture.h"

namespace commpool::internal::testing {
namespace {

class RangesOnly : public ListenerTest {};

TEST_F(RangesOnly, TheToolHearsCallsAndNoMemory) {
  const PoolHandle pool = Create(Configured("gradients"));
  const CUdeviceptr block = runtime().AllocateFrom(pool, 1000, nullptr).value();
  EXPECT_TRUE(heard().heaps.empty());
  EXPECT_TRUE(heard().regions.empty());
  EXPECT_TRUE(Get(pool).mode().Reserve(8 * kMiB).ok());
  EXPECT_FALSE(heard().lines.empty());
  EXPECT_TRUE(runtime().Free(block).ok());
}

}  // namespace
}  // namespace commpool::internal::testing
