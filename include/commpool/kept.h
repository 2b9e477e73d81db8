/* Pools fall asleep and wake: what they keep, where, and how it is read. A part of commpool.h, in its conventions. */
#ifndef COMMPOOL_KEPT_H_
#define COMMPOOL_KEPT_H_

#include "commpool/commpool.h"

/* What stays of the live blocks' contents: nothing, or a copy. */
typedef enum commpool_keep { COMMPOOL_KEEP_DISCARD = 0, COMMPOOL_KEEP_HOST = 1 } commpool_keep;

/* Graphs that captured with the pool. REFUSED: no replay may go wrong; else sleep and wake refuse. The program may
 * promise that they hold NO_COLLECTIVES, or that it replays none again (DISCARDED). */
typedef enum commpool_graphs {
  COMMPOOL_GRAPHS_REFUSED = 0,
  COMMPOOL_GRAPHS_NO_COLLECTIVES = 1,
  COMMPOOL_GRAPHS_DISCARDED = 2
} commpool_graphs;

/* Where copies of blocks lie. */
typedef enum commpool_kept_in {
  COMMPOOL_KEPT_IN_PINNED = 0,   /* pinned memory of the host: fastest on the way back, slow to make */
  COMMPOOL_KEPT_IN_PAGEABLE = 1, /* other memory of the host: half as fast to copy; goes back to the system at once */
  COMMPOOL_KEPT_IN_FILES = 2     /* one file for each segment, in `directory`; they go as the pool wakes */
} commpool_kept_in;

typedef struct commpool_sleep_options {
  size_t struct_bytes;      /* set by commpool_sleep_options_init */
  commpool_keep keep;       /* default HOST, which here means: as the fields below say */
  commpool_graphs graphs;   /* default REFUSED */
  commpool_kept_in kept_in; /* default PINNED */
  const char* directory;    /* of FILES: it exists, on a disk; default null */
  /* Not 0: copies stay once the pool is awake, each at its address, readable, and renewed by the next sleep that keeps
   * its block. What stays counts as kept_bytes; that of a block that was freed goes at the next sleep, with the last of
   * the blocks that were first kept with it. Default 0. */
  int retain;
  /* Pointers into the blocks that are kept; the others are discarded. Each lies in a live block of some pool, which
   * need not be one of those that sleep. Default null: all live blocks. */
  const void* const* blocks;
  size_t block_count;
  /* Likewise, into blocks whose contents do not change: they are copied once, as long as they live and their copies
   * are retained. They need `retain`. Default null. */
  const void* const* constants;
  size_t constant_count;
} commpool_sleep_options;

static inline void commpool_sleep_options_init(commpool_sleep_options* options) {
  if (!options) return;
  memset(options, 0, sizeof(*options));
  options->struct_bytes = sizeof(*options);
  options->keep = COMMPOOL_KEEP_HOST;
}

/* Gives a VMM pool's memory back, after waiting for the device and its peers, and ends its registrations; addresses,
 * blocks and communicators stay. Before ncclCommSuspend. COLLECTIVE for symmetric pools; each rank may keep other
 * blocks, elsewhere. Of several, those of one home, and those without ranks, sleep and wake all or none. Asleep, these
 * work: free, record_stream, release_stream, deregister, abandon, close, destroy and all that reads; scopes begin and
 * end, and what they catch fails. NOT_SUPPORTED for other backings; FAILED_PRECONDITION for open captures, and graphs
 * that could go wrong. Where the host or the disk has no room the pool stays awake, whole: OUT_OF_MEMORY.
 * INVALID_ARGUMENT for a directory that is none or lies in memory (tmpfs), for FILES with `retain`, constants without
 * it, and a pointer that is in no live block. */
COMMPOOL_API commpool_status commpool_pools_sleep_keeping(const commpool_pool* pools, size_t count,
                                                          const commpool_sleep_options* options);

/* The short form: it discards, or keeps all live blocks in pinned memory. */
static inline commpool_status commpool_pools_sleep(const commpool_pool* pools, size_t count, commpool_keep keep,
                                                   commpool_graphs graphs) {
  commpool_sleep_options options;
  commpool_sleep_options_init(&options);
  options.keep = keep;
  options.graphs = graphs;
  return commpool_pools_sleep_keeping(pools, count, &options);
}

static inline commpool_status commpool_pool_sleep(commpool_pool pool, commpool_keep keep, commpool_graphs graphs) {
  return commpool_pools_sleep(&pool, 1, keep, graphs);
}

/* Whether copies stay once the pool is awake, this time and later: as was said, yes, or no. Those in files go. */
typedef enum commpool_retain {
  COMMPOOL_RETAIN_AS_BEFORE = 0,
  COMMPOOL_RETAIN_COPIES = 1,
  COMMPOOL_RETAIN_NOTHING = 2
} commpool_retain;

/* Makes memory at the same addresses, with what was kept, and registers it as before; COLLECTIVE for symmetric pools.
 * Where it fails on a rank it sleeps on, whole, on all: FAILED_PRECONDITION where windows came elsewhere, which any
 * `graphs` but REFUSED accepts: graphs that captured collectives with the pool are stale then. All ranks pass the same
 * `graphs`. */
COMMPOOL_API commpool_status commpool_pools_wake(const commpool_pool* pools, size_t count, commpool_graphs graphs,
                                                 commpool_retain retain);

static inline commpool_status commpool_pool_wake(commpool_pool pool, commpool_graphs graphs) {
  return commpool_pools_wake(&pool, 1, graphs, COMMPOOL_RETAIN_AS_BEFORE);
}

/* Where the copy of `bytes` at the device's `pointer` is, for reading alone: valid until the pool wakes, or, retained,
 * until it next sleeps or the block is freed. Waits for a sleep or wake of the pool that is under way. NOT_FOUND for
 * what was not kept, and a block that was freed; FAILED_PRECONDITION where the pool is awake and has retained nothing,
 * and for a file that is gone, short, or was changed. A file is read as its pages are touched. */
COMMPOOL_API commpool_status commpool_pool_kept(commpool_pool pool, const void* pointer, uint64_t bytes,
                                                const void** kept);

#endif /* COMMPOOL_KEPT_H_ */
