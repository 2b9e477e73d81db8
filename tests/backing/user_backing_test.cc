// The user backing against the conformance suite, with functions that take memory from the driver.
#include "tests/backing/conformance.h"

namespace commpool::internal::testing {

INSTANTIATE_TEST_SUITE_P(Device, BackingConformance,
                         ::testing::Values(BackingUnderTest{.request = {.kind = BackingKind::kUser,
                                                                        .placement = OnDevice(),
                                                                        .user = WorkingUserAllocator()},
                                                            .sharing = Sharing::kNever}));

}  // namespace commpool::internal::testing
