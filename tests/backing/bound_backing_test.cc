// Host memory on the last step of the ladder against the conformance suite: BUILD runs it where the driver says that it
// makes no memory of host NUMA nodes, and where it says that it does and refuses.
#include "tests/backing/conformance.h"

namespace commpool::internal::testing {

INSTANTIATE_TEST_SUITE_P(
    Bound, BackingConformance,
    ::testing::Values(BackingUnderTest{
        "Vmm", {.kind = BackingKind::kVmm, .placement = OnHost()}, Sharing::kFromStart, kGranularity}));

}  // namespace commpool::internal::testing
