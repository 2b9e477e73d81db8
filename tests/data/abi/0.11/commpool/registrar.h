/* Registrars: libraries beside NCCL that register a pool's segments, such as UCX and NIXL. A pool tells them of each
 * segment as it tells a communicator. A capability beside commpool.h, whose conventions hold. */
#ifndef COMMPOOL_REGISTRAR_H_
#define COMMPOOL_REGISTRAR_H_

#include "commpool/commpool.h"

/* What a pool's segments are. */
typedef struct commpool_segment_traits {
  size_t struct_bytes; /* set by the library */
  int device;          /* that the pool was made for */
  commpool_backing backing;
  commpool_location location;
  int numa_node;              /* of a host NUMA node's memory, else -1 */
  uint64_t granularity_bytes; /* sizes of segments are multiples of it */
  int one_handle;             /* 1: each is one handle of cuMemCreate; 0: not, or not known, as below */
  int descriptor;             /* 1: exported as a file descriptor where asked */
  int fabric;                 /* 1: as a fabric handle */
  int rdma;                   /* 1: made with the flag for GPUDirect RDMA */
} commpool_segment_traits;

/* Four functions of the program. They run in the call that needs them (for several pools on threads of the library),
 * the pool's device current, and may not call commpool. A failure may say why in `why`: `why_bytes` with the 0. */
typedef struct commpool_registrar {
  size_t struct_bytes; /* set by commpool_registrar_init */
  const char* name;    /* for errors, and to remove it: "nixl" */
  void* context;       /* passed to each function */
  /* Whether it takes such segments. Null: it does. */
  commpool_status (*check)(void* context, const commpool_segment_traits* traits, char* why, size_t why_bytes);
  /* Registers a whole segment; `*handle` comes back at the end of that, before the memory is unmapped. */
  commpool_status (*add)(void* context, void* address, uint64_t bytes, void** handle, char* why, size_t why_bytes);
  /* Where it fails the segment stays mapped, and a later call tries again. */
  commpool_status (*remove)(void* context, void* address, uint64_t bytes, void* handle, char* why, size_t why_bytes);
  void (*end)(void* context); /* no function is called any more, after a success of `add_registrar`; may be null */
} commpool_registrar;

static inline void commpool_registrar_init(commpool_registrar* registrar) {
  if (!registrar) return;
  memset(registrar, 0, sizeof(*registrar));
  registrar->struct_bytes = sizeof(*registrar);
}

/* Registers all segments with a registrar for each pool, and from now on what grows, wakes or is rehomed; what grew
 * inside of an allocation, by register_pending. A symmetric pool: COLLECTIVE, null on a rank that has none; where one
 * rank fails none has it, and the error names the rank. FAILED_PRECONDITION for a name that the pool has already,
 * NOT_SUPPORTED for an expandable pool. Structs are copied. close() ends all registrations, destroy does not. */
COMMPOOL_API commpool_status commpool_pools_add_registrar(const commpool_pool* pools,
                                                          const commpool_registrar* const* registrars, size_t count);
/* Waits for the device, then ends its registrations. COLLECTIVE likewise; NOT_FOUND in a pool without other ranks. */
COMMPOOL_API commpool_status commpool_pools_remove_registrar(const commpool_pool* pools, size_t count,
                                                             const char* name);

#endif /* COMMPOOL_REGISTRAR_H_ */
