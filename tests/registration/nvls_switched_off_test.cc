// A process with NCCL_NVLS_ENABLE=0.
#include "src/library/pool/nvls_eligibility.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class NvlsSwitchedOff : public SymmetricTest {};

TEST_F(NvlsSwitchedOff, IsTheFirstReason) {
  CreateAndReserve(2 * kMiB);
  const std::vector<CUdeviceptr> blocks = Allocate(2 * kMiB);
  const Result<std::string> reason = WhyNoNvls(driver(), runtime().addresses(), runtime().windows(),
                                               {blocks.front(), 2 * kMiB, group()[0].communicator});
  ASSERT_TRUE(reason.ok()) << reason.status().message();
  EXPECT_NE(reason->find("NCCL_NVLS_ENABLE=0"), std::string::npos) << *reason;
  Free(blocks);
}

}  // namespace
}  // namespace commpool::internal::testing
