// Macros for all files that define functions of nccl.h.
#ifndef COMMPOOL_SRC_EMULATOR_NCCL_API_H_
#define COMMPOOL_SRC_EMULATOR_NCCL_API_H_

#include <nccl.h>

// Defines an exported function. COMMPOOL_NCCL_PROFILED after it exports its second name in nccl.h, pncclX.
#define COMMPOOL_NCCL_API extern "C" __attribute__((visibility("default")))
#define COMMPOOL_NCCL_PROFILED(name) \
  extern "C" __attribute__((visibility("default"), alias(#name))) decltype(name) p##name

#endif  // COMMPOOL_SRC_EMULATOR_NCCL_API_H_
