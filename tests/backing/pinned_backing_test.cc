// The pinned backing against the conformance suite: anywhere on the host, and on a NUMA node.
#include "tests/backing/conformance.h"

namespace commpool::internal::testing {

INSTANTIATE_TEST_SUITE_P(Anywhere, BackingConformance,
                         ::testing::Values(BackingUnderTest{
                             .request = {.kind = BackingKind::kPinned, .placement = OnDevice()},
                             .sharing = Sharing::kFromStart}));

INSTANTIATE_TEST_SUITE_P(OnANode, BackingConformance,
                         ::testing::Values(BackingUnderTest{
                             .request = {.kind = BackingKind::kPinned, .placement = {.numa_node = 0}},
                             .sharing = Sharing::kFromStart,
                             .alignment = 0}));

}  // namespace commpool::internal::testing
