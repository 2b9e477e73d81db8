// What differs between NCCL releases: which functions there are, and how windows behave. Values: any thread.
#ifndef COMMPOOL_SRC_EMULATOR_NCCL_RELEASES_H_
#define COMMPOOL_SRC_EMULATOR_NCCL_RELEASES_H_

#include <string_view>

namespace commpool::internal::emulated_nccl {

// The release that brought an API function: 22700 for 2.27.0; 0 for one that always was.
int FirstReleaseOf(std::string_view function);

// NCCL 2.27's release notes: symmetric windows.
inline constexpr int kFirstWithWindows = 22700;
// src/dev_runtime.cc: an unsupported window is a local handle before, and a null window from here on
// (NVIDIA/nccl#1963).
inline constexpr int kFirstWithNullWindows = 22902;
// src/init.cc of 2.29.7: ending a communicator takes its windows down.
inline constexpr int kFirstThatDropsWindows = 22907;
// NCCL 2.29.7's release notes: an abort ends symmetric kernels.
inline constexpr int kFirstThatAbortsSymmetricKernels = 22907;
// NCCL 2.30.3's release notes: elastic buffers, that is windows of several physical handles and of host memory;
// averages in symmetric kernels.
inline constexpr int kFirstWithSegmentedWindows = 23003;
inline constexpr int kFirstWithHostWindows = 23003;
inline constexpr int kFirstWithSymmetricAverages = 23003;
// src/dev_runtime.cc of 2.30.7: ranks may register unequal sizes.
inline constexpr int kFirstWithUnequalWindows = 23007;

}  // namespace commpool::internal::emulated_nccl

#endif  // COMMPOOL_SRC_EMULATOR_NCCL_RELEASES_H_
