// The nccl backing against the conformance suite.
#include "tests/backing/conformance.h"

namespace commpool::internal::testing {

INSTANTIATE_TEST_SUITE_P(Device, BackingConformance,
                         ::testing::Values(BackingUnderTest{
                             .request = {.kind = BackingKind::kNccl, .placement = OnDevice()},
                             .sharing = Sharing::kFromStart,
                             .alignment = 0}));

}  // namespace commpool::internal::testing
