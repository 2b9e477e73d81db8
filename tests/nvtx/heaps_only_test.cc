// A tool that takes memory and has no domains: it hears of heaps and blocks all the same.
#include "tests/nvtx/listener_fixture.h"

namespace commpool::internal::testing {
namespace {

class HeapsOnly : public ListenerTest {};

TEST_F(HeapsOnly, TheToolHearsOfMemoryAndOfNoCalls) {
  const CUdeviceptr block = Allocate(Make(), 1000);
  EXPECT_EQ(heard().heaps.size(), 1u);
  EXPECT_EQ(Regions(), (Bytes{{block, 1000}}));
  EXPECT_EQ(heard().regions[block].name, "gradients");
  EXPECT_TRUE(heard().lines.empty());
  Free(block);
}

}  // namespace
}  // namespace commpool::internal::testing
