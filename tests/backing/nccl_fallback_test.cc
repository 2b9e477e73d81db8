// With NCCL_CUMEM_ENABLE=0 ncclMemAlloc silently calls cudaMalloc: the nccl backing notices it.
#include <cstdlib>

#include "tests/backing/backing_fixture.h"

namespace commpool::internal::testing {
namespace {

class NcclFallback : public BackingTest {
 protected:
  static void SetUpTestSuite() { setenv("NCCL_CUMEM_ENABLE", "0", 1); }  // before NCCL's first call
  void SetUp() override { COMMPOOL_REQUIRE_NCCL(); }
};

TEST_F(NcclFallback, IsTheReasonForNoWindowsBeforeTheFirstSegment) {
  ExpectMessage(Make({.kind = BackingKind::kNccl})->CanRegisterWindow(), "NCCL_CUMEM_ENABLE");
}

TEST_F(NcclFallback, GivesMemoryThatServesItsDevice) {
  std::unique_ptr<Segment> segment = Make({.kind = BackingKind::kNccl})->Make({.bytes = 1}).value();
  EXPECT_EQ(Fill(0, segment->address(), 7, segment->bytes()), CUDA_SUCCESS);
}

TEST_F(NcclFallback, GrantsNoPeer) {
  COMMPOOL_REQUIRE_DEVICES(2);
  ExpectFailure(Make({.kind = BackingKind::kNccl})->CanGrant(1), StatusCode::kNotSupported, "fell back to cudaMalloc");
}

}  // namespace
}  // namespace commpool::internal::testing
