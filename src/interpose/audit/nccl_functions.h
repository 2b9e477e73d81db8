// ncclMemAlloc and ncclMemFree for who looks them up in NCCL, as our own library does: its memory, which an audit
// counts. Who is linked with them may get a pool's (nccl_memory/from_pools.h).
#pragma once

#include <nccl.h>

#include <cstddef>

namespace commpool::audit {

ncclResult_t AuditedMemAlloc(void** pointer, size_t bytes);
ncclResult_t AuditedMemFree(void* pointer);

}  // namespace commpool::audit
