// The cuda backing against the conformance suite.
#include "tests/backing/conformance.h"

namespace commpool::internal::testing {

INSTANTIATE_TEST_SUITE_P(Device, BackingConformance,
                         ::testing::Values(BackingUnderTest{
                             .request = {.kind = BackingKind::kCuda, .placement = OnDevice()}}));

}  // namespace commpool::internal::testing
