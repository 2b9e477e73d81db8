#include "src/emulator/nccl/releases.h"

namespace commpool::internal::emulated_nccl {

namespace {

struct FirstRelease {
  std::string_view function;
  int release;
};

// NCCL's release notes, and the nccl.h of each release.
constexpr FirstRelease kFirstReleases[] = {
    {"ncclMemAlloc", 21900},
    {"ncclMemFree", 21900},
    {"ncclCommRegister", 21900},
    {"ncclCommDeregister", 21900},
    {"ncclCommInitRankScalable", 22300},
    {"ncclCommWindowRegister", kFirstWithWindows},
    {"ncclCommWindowDeregister", kFirstWithWindows},
    {"ncclCommShrink", 22700},
    {"ncclAlltoAll", 22803},
    {"ncclGather", 22803},
    {"ncclScatter", 22803},
    {"ncclCommRevoke", 22807},
    {"ncclCommGetUniqueId", 22902},
    {"ncclCommGrow", 22902},
    {"ncclCommSuspend", kFirstWithSuspension},
    {"ncclCommResume", kFirstWithSuspension},
    {"ncclCommMemStats", kFirstWithSuspension},
};

}  // namespace

int FirstReleaseOf(std::string_view function) {
  for (const FirstRelease& introduction : kFirstReleases) {
    if (introduction.function == function) return introduction.release;
  }
  return 0;
}

}  // namespace commpool::internal::emulated_nccl
