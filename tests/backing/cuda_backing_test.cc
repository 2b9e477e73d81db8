// The cuda backing against the conformance suite.
#include "tests/backing/conformance.h"

namespace commpool::testing {

INSTANTIATE_TEST_SUITE_P(Device, BackingConformance,
                         ::testing::Values(BackingUnderTest{
                             .request = {.kind = BackingKind::kCuda, .placement = OnDevice()}}));

}  // namespace commpool::testing
