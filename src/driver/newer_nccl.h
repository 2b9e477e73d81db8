// Prototypes of NCCL functions that the oldest nccl.h we build with lacks, for tables and emulator.
#ifndef COMMPOOL_SRC_DRIVER_NEWER_NCCL_H_
#define COMMPOOL_SRC_DRIVER_NEWER_NCCL_H_

#include <nccl.h>

extern "C" {

// Since 2.29.2: an id for ranks that join an existing communicator, and the call that old and new ranks make then. Old
// ranks pass -1 as `rank`, and one of them the id; new ranks pass a null communicator, the id and their rank.
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* uniqueId);
ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank, ncclComm_t* newcomm,
                          ncclConfig_t* config);

}  // extern "C"

#endif  // COMMPOOL_SRC_DRIVER_NEWER_NCCL_H_
