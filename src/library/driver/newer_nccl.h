// Prototypes of NCCL functions that the oldest nccl.h we build with lacks, for tables and emulator.
#pragma once

#include <nccl.h>

#include <cstdint>

extern "C" {

// Since 2.29.2: makes an id for ranks that join an existing communicator, and grows the communicator. Old ranks pass -1
// as `rank`, and one of them passes the id; new ranks pass a null communicator, the id and their rank.
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* uniqueId);
ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank, ncclComm_t* newcomm,
                          ncclConfig_t* config);

// Since 2.29.7: gives the memory of a communicator back and makes it again. Both wait for all ranks, without a
// deadline.
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 7)
#define NCCL_SUSPEND_MEM 0x01
typedef enum {
  ncclStatGpuMemSuspend = 0,    // bytes that a suspension gives back, or gave back
  ncclStatGpuMemSuspended = 1,  // 1 while it is suspended
  ncclStatGpuMemPersist = 2,    // bytes that stay
  ncclStatGpuMemTotal = 3,
} ncclCommMemStat_t;
#endif
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t ncclCommResume(ncclComm_t comm);
ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value);

}  // extern "C"
