/* How other processes reach a pool's memory: by a ticket, a text; by descriptors; as ranks. Beside commpool.h.
 *
 *   the owner                                              another process of its user, on its machine
 *   commpool_block_share(table, COMMPOOL_WRITES_GO_ON,     commpool_import_open(ticket, NULL, &import);
 *                        ticket, sizeof(ticket));          commpool_import_block(import, ticket, &seen, NULL);
 *   commpool_update_begin(table);                          commpool_read_begin(import, seen);
 *   ... write on `stream` ...                              ... read on `stream` ...
 *   commpool_update_end(table, stream);                    commpool_read_end(import, seen, stream);
 */
#ifndef COMMPOOL_SHARE_H_
#define COMMPOOL_SHARE_H_

#include "commpool/commpool.h"

typedef uint64_t commpool_import; /* see convention 3 */

#define COMMPOOL_TICKET_BYTES 512 /* of every ticket at most, with the zero at its end */

/* What a sleep of the pool does while processes import it. */
typedef enum commpool_imports {
  COMMPOOL_IMPORTS_REFUSE_SLEEP = 0, /* it is FAILED_PRECONDITION */
  COMMPOOL_IMPORTS_SLEEP_TOO = 1     /* they let the memory go first, and map it again, where it was, when it wakes */
} commpool_imports;

/* Whether the owner writes to a block that it has shared. */
typedef enum commpool_writes {
  COMMPOOL_WRITES_GO_ON = 0, /* between commpool_update_begin and commpool_update_end */
  COMMPOOL_WRITES_ENDED = 1  /* nobody writes any more: commpool_update_begin refuses */
} commpool_writes;

/* The pool's ticket, the same at each call: who has it reads and writes all of the pool, so it is a secret. It is
 * valid while the pool is there. The last call's `imports` counts. NOT_SUPPORTED, with the reason, for symmetric and
 * expandable pools, and for memory without a handle (cudaMalloc's, a program's functions'); INVALID_ARGUMENT for a
 * `capacity` below COMMPOOL_TICKET_BYTES. */
COMMPOOL_API commpool_status commpool_pool_share(commpool_pool pool, commpool_imports imports, char* ticket,
                                                 size_t capacity);

/* The ticket of the live block at `pointer`, with which its pool is shared too. The program has waited for what it
 * wrote there, or goes on with commpool_update_begin. From now on the block's free asks no thread's cache; while a
 * process holds the block the free returns at once, and the memory serves again after the last one has let go. */
COMMPOOL_API commpool_status commpool_block_share(const void* pointer, commpool_writes writes, char* ticket,
                                                  size_t capacity);

/* Before the owner writes to a shared block: returns once no process reads it, neither between begin and end nor on
 * the device, and lets none begin until commpool_update_end. Processes that ended count no more. DEADLINE_EXCEEDED,
 * naming those that read, after the pool's deadline_ms; FAILED_PRECONDITION within another update, asleep, and for
 * WRITES_ENDED; NOT_FOUND for a block that was not shared by a ticket. */
COMMPOOL_API commpool_status commpool_update_begin(const void* pointer);
/* Others may read once the work on `stream` so far is done; what other streams wrote comes before it there. The block's
 * free waits for that work, too, as after commpool_record_stream. */
COMMPOOL_API commpool_status commpool_update_end(const void* pointer, struct CUstream_st* stream);

typedef enum commpool_addresses {
  COMMPOOL_ADDRESSES_ANY = 0, /* those of the owner where they are free here, else others */
  COMMPOOL_ADDRESSES_SAME = 1 /* those of the owner, or FAILED_PRECONDITION that names them */
} commpool_addresses;

typedef struct commpool_import_options {
  size_t struct_bytes;          /* set by commpool_import_options_init */
  int device;                   /* which reads and writes it; default COMMPOOL_CURRENT_DEVICE (-1): the pool's own */
  commpool_addresses addresses; /* of its segments; default ANY */
  uint64_t deadline_ms;         /* of every wait for the owner; default 60000 */
} commpool_import_options;

static inline void commpool_import_options_init(commpool_import_options* options) {
  if (!options) return;
  memset(options, 0, sizeof(*options));
  options->struct_bytes = sizeof(*options);
  options->device = COMMPOOL_CURRENT_DEVICE;
  options->deadline_ms = 60000;
}

/* Imports the pool of a ticket, its own or one of its blocks'; `options` may be null. Segments are mapped, read and
 * write, when something in them is asked for; the ticket's block at once, and held, where the owner is awake. What is
 * mapped stays until commpool_import_close, whatever becomes of the owner. INVALID_ARGUMENT for what is
 * no ticket, or cut; NOT_SUPPORTED for one of a newer commpool; FAILED_PRECONDITION in the owner's own process;
 * REMOTE_FAILURE where the owner has ended, or is another user; NOT_FOUND where its pool has ended, for a forged
 * ticket, and where this process does not see the device; DEADLINE_EXCEEDED without an answer. */
COMMPOOL_API commpool_status commpool_import_open(const char* ticket, const commpool_import_options* options,
                                                  commpool_import* import);
/* Where a block of the pool is in this process. Held until commpool_import_release, as often as it was asked for. The
 * first block of a segment maps it, further ones cost no driver call. `bytes` may be null. NOT_FOUND where it was
 * freed before this import held it; OUT_OF_MEMORY, and nothing has changed, where either process has no descriptor
 * left; EXHAUSTED beyond 8192 blocks; FAILED_PRECONDITION for a block that is not mapped, while the owner's pool
 * sleeps. */
COMMPOOL_API commpool_status commpool_import_block(commpool_import import, const char* ticket, void** pointer,
                                                   uint64_t* bytes);
/* Where the memory is here that the owner has at `theirs`, in any segment of the pool; holds nothing. */
COMMPOOL_API commpool_status commpool_import_address(commpool_import import, const void* theirs, void** pointer);

/* Around work that reads a held block. Begin returns once no update is under way, on the device either; it costs no
 * message and, between updates, no driver call. DEADLINE_EXCEEDED where one does not end, or the pool sleeps on;
 * REMOTE_FAILURE at once where the owner ended, freed the block or ended its pool within one: what is there then is
 * neither old nor new; likewise where its pool ended asleep, and the memory with it. */
COMMPOOL_API commpool_status commpool_read_begin(commpool_import import, const void* pointer);
/* The read is over once the work on `stream` so far is done, of the import's device; reads on several streams are
 * ordered one behind the other there. FAILED_PRECONDITION without a begin, and for a stream that captures. */
COMMPOOL_API commpool_status commpool_read_end(commpool_import import, const void* pointer, struct CUstream_st* stream);

/* Lets a block go: its memory may serve again once the work on `stream` so far is done. Returns at once. */
COMMPOOL_API commpool_status commpool_import_release(commpool_import import, const void* pointer,
                                                     struct CUstream_st* stream);
/* Lets all go, after a wait for the import's device, and unmaps. DEADLINE_EXCEEDED, with nothing done, while it is
 * busy past deadline_ms; FAILED_PRECONDITION within a capture that was announced, to the device's default pool where
 * the process has no other. */
COMMPOOL_API commpool_status commpool_import_close(commpool_import import);

/* The memory that holds the live block at `pointer`: another process imports `descriptor` as a POSIX file descriptor
 * (cuMemImportFromShareableHandle) and maps all `bytes`; the block lies there as far from the start as from `base`.
 * The descriptor is the library's, one for each segment, open until that goes or sleeps, and closed in a child of
 * fork(): duplicate it to keep it. It is -1 for memory without a handle, such as cudaMalloc's: cuIpcGetMemHandle(base)
 * serves. From now on, until the block is freed, its pool may not sleep, and its free asks no thread's cache.
 * NOT_SUPPORTED for symmetric and expandable pools; FAILED_PRECONDITION for a pool that sleeps; NOT_FOUND where no live
 * block of a pool is. */
COMMPOOL_API commpool_status commpool_share(const void* pointer, void** base, uint64_t* bytes, int* descriptor);

/* Where memory of a symmetric pool lies on each rank: on rank r at first + r * stride_bytes. For kernels, by value. */
typedef struct commpool_peers {
  char* first;
  uint64_t stride_bytes;
  int ranks; /* of home */
} commpool_peers;

/* Maps the segments of symmetric pools on all ranks of home, for each rank's device to read and write. COLLECTIVE, and
 * again after a reserve that grew one. They are unmapped in trim, sleep, rehome and close; a sleep keeps the addresses,
 * so graphs may hold them, and wake maps them there; where it cannot it fails, and the pool is awake: map them again.
 * NOT_SUPPORTED on all ranks, with nothing mapped, where they are on several hosts or in several containers. */
COMMPOOL_API commpool_status commpool_pools_map_peers(const commpool_pool* pools, size_t count);
/* `pointer` is in a live block, else NOT_FOUND; FAILED_PRECONDITION where its segment is not mapped. No driver call. */
COMMPOOL_API commpool_status commpool_peers_of(const void* pointer, commpool_peers* peers);

#endif /* COMMPOOL_SHARE_H_ */
