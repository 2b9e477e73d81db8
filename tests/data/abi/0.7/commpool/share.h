/* How other processes reach the memory of a block. A capability beside commpool.h, whose conventions hold. */
#ifndef COMMPOOL_SHARE_H_
#define COMMPOOL_SHARE_H_

#include "commpool/commpool.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The memory that holds the live block at `pointer`: another process imports `descriptor` as a POSIX file descriptor
 * (cuMemImportFromShareableHandle) and maps all `bytes`; the block lies there as far from the start as from `base`.
 * The descriptor is the library's, one for each segment, and open until the segment goes: duplicate it to keep it.
 * It is -1 for memory without a handle, such as cudaMalloc's: cuIpcGetMemHandle(base) serves. From now on, until the
 * block is freed, its pool may not sleep, and its free asks no thread's cache. NOT_SUPPORTED for symmetric and
 * expandable pools; FAILED_PRECONDITION for a pool that sleeps; NOT_FOUND where no live block of a pool is. */
COMMPOOL_API commpool_status commpool_share(const void* pointer, void** base, uint64_t* bytes, int* descriptor);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* COMMPOOL_SHARE_H_ */
