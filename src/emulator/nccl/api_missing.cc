// Functions that nccl.h declares and the emulator lacks: each aborts with its name.
#include <cstdio>
#include <cstdlib>

#include "src/emulator/nccl/api.h"

namespace {

[[noreturn]] void Missing(const char* name) {
  std::fprintf(stderr, "commpool: the emulated NCCL does not implement %s\n", name);
  std::abort();
}

}  // namespace

#define COMMPOOL_NCCL_MISSING(name, ...)                               \
  COMMPOOL_NCCL_API ncclResult_t name(__VA_ARGS__) { Missing(#name); } \
  COMMPOOL_NCCL_PROFILED(name)

COMMPOOL_NCCL_MISSING(ncclCommInitRankScalable, ncclComm_t*, int, int, int, ncclUniqueId*, ncclConfig_t*);
COMMPOOL_NCCL_MISSING(ncclGroupSimulateEnd, ncclSimInfo_t*);

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
COMMPOOL_NCCL_API void ncclResetDebugInit() { Missing("ncclResetDebugInit"); }
COMMPOOL_NCCL_PROFILED(ncclResetDebugInit);
#pragma GCC diagnostic pop
