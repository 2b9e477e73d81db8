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
  const Status capability = Make({.kind = BackingKind::kNccl})->CanRegisterWindow();
  EXPECT_FALSE(capability.ok());
  EXPECT_NE(capability.message().find("NCCL_CUMEM_ENABLE"), std::string::npos) << capability.message();
}

TEST_F(NcclFallback, GivesMemoryThatServesItsDevice) {
  std::unique_ptr<Segment> segment = Make({.kind = BackingKind::kNccl})->Make({.bytes = 1}).value();
  EXPECT_EQ(Fill(0, segment->address(), 7, segment->bytes()), CUDA_SUCCESS);
}

TEST_F(NcclFallback, GrantsNoPeer) {
  COMMPOOL_REQUIRE_DEVICES(2);
  std::unique_ptr<Backing> backing = Make({.kind = BackingKind::kNccl});
  const Status status = backing->CanGrant(1);
  EXPECT_EQ(status.code(), StatusCode::kNotSupported);
  EXPECT_NE(status.message().find("fell back to cudaMalloc"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace commpool::internal::testing
