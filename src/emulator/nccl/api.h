// Macros for all files that define functions of nccl.h.
#pragma once

#include <nccl.h>

// Defines an exported function. COMMPOOL_NCCL_PROFILED after it exports its second name in nccl.h, pncclX.
#define COMMPOOL_NCCL_API extern "C" __attribute__((visibility("default")))
#define COMMPOOL_NCCL_PROFILED(name) \
  extern "C" __attribute__((visibility("default"), alias(#name))) decltype(name) p##name
