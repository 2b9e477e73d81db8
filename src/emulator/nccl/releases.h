// What differs between NCCL releases: which functions exist, and how windows behave. Values: any thread.
#pragma once

#include <string_view>

namespace commpool::internal::emulated_nccl {

// Returns the release that introduced a function, such as 22700 for 2.27.0; 0 if all releases have it.
int FirstReleaseOf(std::string_view function);

// NCCL 2.27's release notes: symmetric windows.
inline constexpr int kFirstWithWindows = 22700;
// A communicator whose configuration asks for no SMs gathers by copy engines (src/ce_coll.cc of 2.28.3). From 2.29.2 on
// its policies can be combined (src/enqueue.cc).
inline constexpr int kFirstWithCopyEngines = 22803;
inline constexpr int kFirstWithCombinedPolicies = 22902;
// Before this release an unsupported window is a local handle; from it on it is null (src/dev_runtime.cc,
// NVIDIA/nccl#1963).
inline constexpr int kFirstWithNullWindows = 22902;
// Ranks that only the network joins have windows, by NCCL's proxies (NCCL 2.29.2's release notes).
inline constexpr int kFirstWithNetworkWindows = 22902;
// The end of a communicator ends its windows too (src/init.cc of 2.29.7).
inline constexpr int kFirstThatDropsWindows = 22907;
// A communicator's memory is counted, and can be given back (src/mem_manager.cc of 2.29.7).
inline constexpr int kFirstWithSuspension = 22907;
// An abort ends symmetric kernels (NCCL 2.29.7's release notes).
inline constexpr int kFirstThatAbortsSymmetricKernels = 22907;
// Elastic buffers (NCCL 2.30.3's release notes): a window may have several physical handles, or host memory; symmetric
// kernels compute averages.
inline constexpr int kFirstWithSegmentedWindows = 23003;
inline constexpr int kFirstWithHostWindows = 23003;
inline constexpr int kFirstWithSymmetricAverages = 23003;
// Ranks may register windows of unequal size (src/dev_runtime.cc of 2.30.7).
inline constexpr int kFirstWithUnequalWindows = 23007;

}  // namespace commpool::internal::emulated_nccl
