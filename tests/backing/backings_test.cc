// Every backing against the conformance suite. The user's functions take memory from the driver.
#include "tests/backing/conformance.h"

namespace commpool::internal::testing {

INSTANTIATE_TEST_SUITE_P(
    All, BackingConformance,
    ::testing::Values(
        BackingUnderTest{"Vmm", {.kind = BackingKind::kVmm}, Sharing::kByGrant, kGranularity},
        BackingUnderTest{
            "VmmOnANode", {.kind = BackingKind::kVmm, .placement = OnHost()}, Sharing::kByGrant, kGranularity},
        BackingUnderTest{"Cuda", {.kind = BackingKind::kCuda}},
        BackingUnderTest{"Nccl", {.kind = BackingKind::kNccl}, Sharing::kFromStart, kGranularity},
        BackingUnderTest{"Pinned", {.kind = BackingKind::kPinned}, Sharing::kFromStart},
        BackingUnderTest{"PinnedOnANode",
                         {.kind = BackingKind::kPinned, .placement = {.numa_node = 0}},
                         Sharing::kFromStart,
                         kGranularity},
        BackingUnderTest{"User", {.kind = BackingKind::kUser, .user = WorkingUserAllocator()}, Sharing::kNever}),
    [](const auto& backing) { return std::string(backing.param.name); });

}  // namespace commpool::internal::testing
