// The vmm backing against the conformance suite: on a device, and on a host NUMA node.
#include "tests/backing/conformance.h"

namespace commpool::internal::testing {

INSTANTIATE_TEST_SUITE_P(Device, BackingConformance,
                         ::testing::Values(BackingUnderTest{
                             .request = {.kind = BackingKind::kVmm, .placement = OnDevice()}, .alignment = 0}));

INSTANTIATE_TEST_SUITE_P(HostNuma, BackingConformance,
                         ::testing::Values(BackingUnderTest{
                             .request = {.kind = BackingKind::kVmm, .placement = OnHost()}, .alignment = 0}));

}  // namespace commpool::internal::testing
