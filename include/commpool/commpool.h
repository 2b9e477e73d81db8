/* commpool: communicator-aware private memory pools for multi-GPU programs. The C ABI: the one binary interface.
 *
 * C++ programs want pool.h, scope.h and buffer.h beside this file, a header-only skin over it. inline.h, included
 * below, has what is not exported: the functions that set defaults, and for one pool the calls that take several.
 *
 * Conventions, for every function:
 *  1. A function returns COMMPOOL_OK or why it failed; commpool_last_error() then holds a sentence with the call, the
 *     device, the bytes and the likely cause. Where it fails nothing has changed and outputs are not written.
 *  2. Sizes and offsets are bytes. Waits are milliseconds. Devices are CUDA ordinals, NUMA nodes the system's numbers.
 *  3. Pools and scopes are numbers, never reused: a call on one that has ended is an error, not a crash. 0 is none.
 *  4. A caller owns what it created and gives it back with the matching call: a pool with commpool_pool_destroy, a
 *     scope with commpool_scope_end, a block with commpool_free. Nothing else is owned by the caller.
 *  5. Streams and communicators are the caller's and must outlive their use here: commpool_release_stream comes before
 *     cuStreamDestroy, commpool_pool_deregister (or abandon) before ncclCommDestroy (or abort).
 *  6. Any thread may call any function, except that calls marked COLLECTIVE are made by every rank of the pool's home
 *     communicator, in the same order, on the thread that uses the communicator, at the same place among its
 *     collectives: NCCL allows one thread a communicator. A thread that owns several ranks calls commpool_pools_*.
 *  7. An allocation or a free is never COLLECTIVE and never calls NCCL.
 *  8. The calling thread's current CUDA device is the same after a call as before it.
 *  9. A struct that a program fills begins with struct_bytes, its size as the program was compiled; the struct's init
 *     function, inline, sets it beside the defaults. The library reads and writes that much and no more. An array of
 *     structs is indexed by the program's size too: struct_bytes of the first, or the argument `entry_bytes`.
 * 10. After fork() the child must not call commpool: CUDA itself does not survive it.
 * 11. A program runs on the library of its own version and on every later one of the same major. Structs grow at their
 *     end, by fields whose 0 means what was before them; enumerations grow by values. A program that sets what an older
 *     library does not know gets NOT_SUPPORTED, or INVALID_ARGUMENT for a value, with a sentence that says so; figures
 *     that an older library does not have are 0. A status that a program does not know is a failure.
 */
#ifndef COMMPOOL_COMMPOOL_H_
#define COMMPOOL_COMMPOOL_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COMMPOOL_VERSION_MAJOR 0
#define COMMPOOL_VERSION_MINOR 1
#define COMMPOOL_VERSION_PATCH 0
#define COMMPOOL_VERSION (COMMPOOL_VERSION_MAJOR * 10000 + COMMPOOL_VERSION_MINOR * 100 + COMMPOOL_VERSION_PATCH)

#define COMMPOOL_API __attribute__((visibility("default")))

struct CUstream_st; /* a cudaStream_t or CUstream */
struct ncclComm;    /* what an ncclComm_t points to */
struct ncclWindow_vidmem;

typedef enum commpool_status {
  COMMPOOL_OK = 0,
  COMMPOOL_INVALID_ARGUMENT = 1,
  COMMPOOL_OUT_OF_MEMORY = 2,
  COMMPOOL_EXHAUSTED = 3,
  COMMPOOL_NOT_SUPPORTED = 4,
  COMMPOOL_FAILED_PRECONDITION = 5,
  COMMPOOL_NOT_FOUND = 6,
  COMMPOOL_DEADLINE_EXCEEDED = 7,
  COMMPOOL_DISAGREEMENT = 8,
  COMMPOOL_REMOTE_FAILURE = 9,
  COMMPOOL_DRIVER_ERROR = 10,
  COMMPOOL_COMMUNICATOR_ERROR = 11,
  COMMPOOL_INTERNAL = 12,
  COMMPOOL_NOT_CAUGHT = 13 /* of commpool_allocate_in_scope alone: no failure, and no sentence */
} commpool_status;

/* The sentence of this thread's last failed call; empty before the first. Valid until its next failed call. */
COMMPOOL_API const char* commpool_last_error(void);

/* COMMPOOL_VERSION of the library that runs: a plugin that may meet an older one asks before it uses what is newer. */
COMMPOOL_API int commpool_version(void);

/* ---- The runtime ------------------------------------------------------------------------------------------------ */

typedef enum commpool_driver {
  COMMPOOL_DRIVER_CUDA = 0,     /* the real driver, or an error: what the library takes unless told otherwise */
  COMMPOOL_DRIVER_EMULATED = 1, /* the software driver and NCCL */
  COMMPOOL_DRIVER_AUTO = 2      /* the real driver where it has a device, else the emulator: for tools and examples */
} commpool_driver;

/* Opens the driver and NCCL. Optional: the first call that needs them opens the real ones. The environment variable
 * COMMPOOL_DRIVER goes before `driver` where it says cuda or emulated; auto, there, leaves the choice to this call.
 * Under mpirun AUTO is decided once for all ranks: decide on one, and name the result on every rank.
 * FAILED_PRECONDITION where another driver is open already; NOT_FOUND where there is none, with what was tried. */
COMMPOOL_API commpool_status commpool_initialize(commpool_driver driver);

/* What is in use, "CUDA driver 13.0, 4 devices, NCCL 2.28.9". Valid for ever; empty before the runtime is open. */
COMMPOOL_API const char* commpool_driver_description(void);

/* ---- Pools ------------------------------------------------------------------------------------------------------ */

typedef uint64_t commpool_pool;

typedef enum commpool_backing {
  COMMPOOL_BACKING_VMM = 0,  /* cuMemCreate: a device's memory or a host NUMA node's; peers and handles as asked */
  COMMPOOL_BACKING_CUDA = 1, /* cudaMalloc memory: no windows, peers by cudaDeviceEnablePeerAccess */
  COMMPOOL_BACKING_NCCL = 2, /* ncclMemAlloc: grants every reachable peer at once, 20 to 47 ms for 512 MiB */
  COMMPOOL_BACKING_USER = 3  /* the functions below */
} commpool_backing;

typedef enum commpool_location {
  COMMPOOL_LOCATION_DEVICE = 0,
  COMMPOOL_LOCATION_HOST_NUMA = 1 /* host memory of one NUMA node, mapped to the device; VMM only */
} commpool_location;

typedef enum commpool_frees {
  COMMPOOL_FREES_DEFERRED = 0, /* a symmetric pool's free takes effect at the next reserve, trim or reclaim */
  COMMPOOL_FREES_ORDERED = 1   /* ranks free in lockstep, the program promises: reuse at once */
} commpool_frees;

/* PyTorch's pluggable signatures, with a context last. Return null for out of memory. Called outside every lock. */
typedef void* (*commpool_user_allocate)(ptrdiff_t bytes, int device, struct CUstream_st* stream, void* context);
typedef void (*commpool_user_free)(void* pointer, ptrdiff_t bytes, int device, struct CUstream_st* stream,
                                   void* context);

typedef enum commpool_mode {
  COMMPOOL_MODE_FIXED = 0,     /* segments never move: what registration and peers' imports need */
  COMMPOOL_MODE_EXPANDABLE = 1 /* free pages move to where they are needed, so that a request fits whenever free memory
                                  suffices. VMM only; never registered */
} commpool_mode;

typedef enum commpool_moves {
  COMMPOOL_MOVES_EAGER = 0,         /* an expandable pool moves free pages before it makes new ones: least memory */
  COMMPOOL_MOVES_UNDER_PRESSURE = 1 /* only where a limit or the device leaves no room to grow: least driver time */
} commpool_moves;

/* An all-gather of the caller's for the agreement of a symmetric pool (MPI, a torch store): every rank gives `bytes`
 * bytes, the same number on all, and `received` gets rank 0's first. Returns 0, or non-zero where it failed. It is
 * called in COLLECTIVE calls alone, on their thread; so ranks that made different calls hear of it at the next of
 * those, or at commpool_pool_verify, where over TCP they hear of it within 64 further calls. */
typedef int (*commpool_all_gather)(const void* sent, void* received, size_t bytes, void* context);

typedef struct commpool_pool_options {
  size_t struct_bytes;        /* set by commpool_pool_options_init */
  const char* name;           /* for messages and statistics; copied; default "pool" */
  int device;                 /* whose allocations it serves; default 0 */
  commpool_backing backing;   /* default VMM: the one that can do everything NCCL asks for */
  commpool_location location; /* default DEVICE */
  int numa_node;              /* of a HOST_NUMA pool; default -1: the node nearest to the device */

  struct ncclComm* symmetric_across; /* home communicator: the pool is symmetric. Default null: a fixed pool */
  commpool_all_gather all_gather;    /* default null: TCP, its address sent once over the home communicator */
  void* all_gather_context;
  commpool_frees frees; /* of a symmetric pool; default DEFERRED */
  commpool_mode mode;   /* of a pool that is not symmetric; default FIXED */
  commpool_moves moves; /* of an expandable pool; default EAGER */
  uint64_t deadline_ms; /* of every wait for other ranks and for the device; default 60000 */

  const int* peers; /* other devices of this process that may access the pool; default none */
  size_t peer_count;

  uint64_t alignment_bytes;   /* of every block, a power of two from 512 to the granularity; default 512 */
  uint64_t segment_bytes;     /* least size of a segment; default 0: 2 MiB, 8 MiB or the request, by its size */
  uint64_t granularity_bytes; /* segments are multiples of it, a power of two; default 0: the backing's, the least */
  /* Free memory beyond it is given back at the pool's next call once the device is done with it, as cudaMemPool's
   * release threshold does at a synchronisation; default UINT64_MAX: the pool keeps what it has. A pool with a
   * threshold keeps no caches of threads. */
  uint64_t release_threshold_bytes;
  uint64_t limit_bytes; /* of all segments; default UINT64_MAX: the device's memory is the limit */

  commpool_user_allocate user_allocate; /* of a USER pool */
  commpool_user_free user_free;
  void* user_context; /* must outlive the pool's last block */
} commpool_pool_options;

/* Calls for several pools, commpool_pools_*, are also there for one, inline: commpool_pool_reserve(pool, bytes) and so
 * on. A call for one pool runs on the calling thread. One for several is for a thread that owns the communicators of
 * several ranks (ncclCommInitAll): made one after another, the first would wait for the next for ever. Each pool's part
 * then runs on a thread of the library's while the caller waits, with that pool's device current; a caller's all_gather
 * is called on those threads. The failure of the first pool that has one is returned. INVALID_ARGUMENT for no pool and
 * for one that is passed twice. The pools that one commpool_pools_create made with one home belong together: a
 * COLLECTIVE call of that thread for only some of them is FAILED_PRECONDITION at once. */

/* Makes `count` pools, or none; no segment yet. COLLECTIVE over symmetric_across where that is set.
 * INVALID_ARGUMENT for an unknown device, backing or option, or options that exclude each other; NOT_SUPPORTED, with
 * the reason, for what this driver, device or NCCL cannot do. Where one rank's options are refused all ranks get its
 * reason at once; only one with a wrong struct_bytes or without a usable communicator cannot tell the others. */
COMMPOOL_API commpool_status commpool_pools_create(const commpool_pool_options* options, size_t count,
                                                   commpool_pool* pools);

/* Closes the pool to allocation and ends the handle. Its segments live until their last block is freed. Calls no NCCL:
 * of a pool that is still registered the segments stay mapped until the process ends, and a line on stderr says so.
 * The default pools are the library's: INVALID_ARGUMENT. */
COMMPOOL_API commpool_status commpool_pool_destroy(commpool_pool pool);

/* The clean end: waits for the device, deregisters everywhere, gives segments without live blocks back, and closes the
 * pool to allocation. The handle stays valid until commpool_pool_destroy. COLLECTIVE for symmetric pools, whose blocks
 * must all be freed before (FAILED_PRECONDITION, with their number: nothing is done on any rank). Idempotent.
 * A symmetric pool whose ranks turn out to have made different calls has diverged, for good: its blocks are at
 * different offsets, so allocations and COLLECTIVE calls end with DISAGREEMENT. Blocks can still be freed, and then
 * close() ends the pool as usual. Only a close() by which a rank hears of the difference for the first time ends with
 * DISAGREEMENT on all ranks; the next one ends the pool. */
COMMPOOL_API commpool_status commpool_pools_close(const commpool_pool* pools, size_t count);

/* The pool that serves a device's allocations outside every scope: VMM where the device has it, else CUDA; made at its
 * first use. */
COMMPOOL_API commpool_status commpool_default_pool(int device, commpool_pool* pool);

/* Makes free memory for at least `bytes` in one piece, by growing where the free memory does not suffice. COLLECTIVE
 * for symmetric pools: ranks agree, make, register and agree again; where one fails all return the error, naming the
 * rank, and the pool is as before. DISAGREEMENT where ranks ask for different bytes or made different calls before. */
COMMPOOL_API commpool_status commpool_pools_reserve(const commpool_pool* pools, size_t count, uint64_t bytes);

/* Lets deferred frees take effect that every rank has made. COLLECTIVE. A fixed pool returns OK and does nothing.
 * reclaimed_bytes has a place for each pool, or is null. */
COMMPOOL_API commpool_status commpool_pools_reclaim(const commpool_pool* pools, size_t count,
                                                    uint64_t* reclaimed_bytes);

/* Gives segments without live blocks back to the driver until at most `keep_bytes` stay reserved. COLLECTIVE for
 * symmetric pools (it reclaims first). Waits for the device; deregisters before it unmaps. A registered fixed pool
 * keeps its registered segments. released_bytes has a place for each pool, or is null. */
COMMPOOL_API commpool_status commpool_pools_trim(const commpool_pool* pools, size_t count, uint64_t keep_bytes,
                                                 uint64_t* released_bytes);

/* Compares the pool's calls so far between the ranks, and changes nothing: it is no part of them itself. COLLECTIVE. A
 * fixed pool returns OK. DISAGREEMENT names the first call that differs and two ranks that made different ones; the
 * pool has then diverged (see commpool_pool_close). */
COMMPOOL_API commpool_status commpool_pools_verify(const commpool_pool* pools, size_t count);

/* ---- Allocation ------------------------------------------------------------------------------------------------- */

#define COMMPOOL_CURRENT_DEVICE (-1)

/* Allocates from the innermost open scope that catches it, else from the device's default pool. The block may be used
 * on `stream` at once, on others after the caller ordered them behind it. `device`: COMMPOOL_CURRENT_DEVICE is the
 * stream's device, or, for the default streams, this thread's current one.
 * INVALID_ARGUMENT for zero bytes and sizes that overflow; OUT_OF_MEMORY with a table of who holds what; EXHAUSTED for
 * a full symmetric pool, with the bytes that commpool_pool_reserve needs for this request, the same on every rank. */
COMMPOOL_API commpool_status commpool_allocate(int device, uint64_t bytes, struct CUstream_st* stream, void** pointer);

/* The same from one pool, whatever scopes are open. */
COMMPOOL_API commpool_status commpool_pool_allocate(commpool_pool pool, uint64_t bytes, struct CUstream_st* stream,
                                                    void** pointer);

/* For a framework's router (PyTorch's allocator class), which must leave every other allocation to the framework: the
 * same where a scope catches it, else NOT_CAUGHT, with the last error and `pointer` as they were. Where no scope is
 * open in the process that costs one load and a branch. `device` is named: it may not be COMMPOOL_CURRENT_DEVICE. */
COMMPOOL_API commpool_status commpool_allocate_in_scope(int device, uint64_t bytes, struct CUstream_st* stream,
                                                        void** pointer);

/* Gives a block back, from any thread. Work already submitted to the stream of its allocation, and to streams named by
 * commpool_record_stream, may still use it: it is reused in their order. Null is OK. NOT_FOUND for a pointer that is
 * not the start of a live block (foreign, or freed already). */
COMMPOOL_API commpool_status commpool_free(void* pointer);

/* Notes that `stream` uses the block too. Call it after submitting that work and before the free. */
COMMPOOL_API commpool_status commpool_record_stream(void* pointer, struct CUstream_st* stream);

/* Forgets a stream before it is destroyed, after waiting for its work: handles are recycled, and an order that was kept
 * under the old one would be lost (rule 11 of the design). */
COMMPOOL_API commpool_status commpool_release_stream(struct CUstream_st* stream);

/* Functions without a context, as frameworks take them: torch.cuda.MemPool's pluggable allocator, vLLM, SGLang. */
typedef void* (*commpool_plain_allocate)(size_t bytes, int device, struct CUstream_st* stream);
typedef void (*commpool_plain_free)(void* pointer, size_t bytes, int device, struct CUstream_st* stream);

/* A pair that allocates from one pool, whatever scopes are open; the same at each call for a pool. `allocate` returns
 * null for 0 bytes, for another device than the pool's, and where it fails: commpool_last_error says why. Call it no
 * more once the pool is destroyed: null at first, it may become another pool's. `release` frees a block of any pool, at
 * any time. OUT_OF_MEMORY where 256 pools with functions are alive. */
COMMPOOL_API commpool_status commpool_pool_functions(commpool_pool pool, commpool_plain_allocate* allocate,
                                                     commpool_plain_free* release);

/* ---- Stream capture --------------------------------------------------------------------------------------------- */

typedef uint64_t commpool_capture;

/* Announces that `stream` is being captured: until commpool_capture_end the pool serves the streams of that capture
 * from a part of its own that belongs to the graph, from reserved memory alone: no growth, no registration, no wait.
 * What is freed inside the capture is reused inside it. The part returns to the pool when its last block is freed and
 * the graph and everything instantiated from it is destroyed; its segments stay where they are until then. Call it
 * after cuStreamBeginCapture. FAILED_PRECONDITION where the stream is not being captured; NOT_SUPPORTED where the
 * driver knows no user objects. A symmetric pool serves a capture from its sequence as usual, waiting on the host for
 * what other streams did with the block before; what is freed then returns, by the next collective call, once the
 * graphs of all ranks are gone. NOT_SUPPORTED with frees = ORDERED, which take effect at once. While the capture is
 * open its collective calls other than reclaim, and while the graph is alive trim, deregister and close (of a
 * registered fixed pool the last two), are FAILED_PRECONDITION, on all ranks with the reason: captured collectives keep
 * NCCL's handles. */
COMMPOOL_API commpool_status commpool_capture_begin(commpool_pool pool, struct CUstream_st* stream,
                                                    commpool_capture* capture);

/* Ends it, before or after cuStreamEndCapture, also after one that failed. NOT_FOUND for one that has ended. */
COMMPOOL_API commpool_status commpool_capture_end(commpool_capture capture);

/* ---- Memory of a device ----------------------------------------------------------------------------------------- */

/* The most that all pools of a device may reserve together; UINT64_MAX, the default, for no limit. What is reserved
 * already stays; a device over its limit grows no pool. */
COMMPOOL_API commpool_status commpool_set_device_limit(int device, uint64_t bytes);

/* Another allocator of the process, such as a framework's: asked when a device runs out, and named in the error.
 * Both functions are called on an allocating thread, outside every lock; they must not call commpool. */
typedef struct commpool_holder_options {
  size_t struct_bytes; /* set by commpool_holder_options_init */
  const char* name;    /* for the error's table; copied; default "other" */
  /* Bytes of the device that it holds and does not use. May be null: unknown. */
  uint64_t (*cached_bytes)(int device, void* context);
  /* Asks for at least `bytes` to be given back to the driver; returns what was. May be null: it gives nothing. */
  uint64_t (*release)(int device, uint64_t bytes, void* context);
  void* context;
} commpool_holder_options;

typedef uint64_t commpool_holder;

COMMPOOL_API commpool_status commpool_add_holder(const commpool_holder_options* options, commpool_holder* holder);
/* Returns when no call of its functions is running any more. NOT_FOUND for one that was removed. */
COMMPOOL_API commpool_status commpool_remove_holder(commpool_holder holder);

/* ---- Scopes: begin/end-allocate-to-pool ------------------------------------------------------------------------- */

typedef uint64_t commpool_scope;

typedef enum commpool_filter {
  COMMPOOL_FILTER_THREAD = 0, /* allocations of the thread that began the scope */
  COMMPOOL_FILTER_STREAM = 1, /* allocations for one stream, from any thread (backward threads included) */
  COMMPOOL_FILTER_PROCESS = 2 /* every allocation; symmetric pools refuse it */
} commpool_filter;

typedef enum commpool_exhaustion {
  COMMPOOL_EXHAUSTION_ERROR = 0,     /* the allocation fails */
  COMMPOOL_EXHAUSTION_NEXT_SCOPE = 1 /* it goes to the next scope out that catches it, at last to the default pool */
} commpool_exhaustion;

typedef struct commpool_scope_options {
  size_t struct_bytes;    /* set by commpool_scope_options_init */
  commpool_filter filter; /* default THREAD */
  /* Where the pool answers EXHAUSTED or, at its limit or on a full device, OUT_OF_MEMORY; default ERROR. What a full
   * symmetric pool hands on is the same on every rank. What another pool hands on is not, and passes symmetric pools
   * by. */
  commpool_exhaustion exhaustion;
  struct CUstream_st* stream; /* of a STREAM filter */
  uint64_t min_bytes;         /* smaller allocations are not caught; default 0 */
  uint64_t max_bytes;         /* larger ones neither; default UINT64_MAX */
} commpool_scope_options;

/* From now on allocations that the filter and the sizes catch go to the pool, where they are for its device. Scopes
 * nest: of those that catch one the one begun last wins, whatever its filter. `options` may be null: this thread.
 * INVALID_ARGUMENT for a min_bytes above max_bytes and unknown values. */
COMMPOOL_API commpool_status commpool_scope_begin(commpool_pool pool, const commpool_scope_options* options,
                                                  commpool_scope* scope);

/* Ends a scope. A thread's scope ends on its own thread, innermost first (FAILED_PRECONDITION otherwise, and it stays
 * open). NOT_FOUND for one that has ended. */
COMMPOOL_API commpool_status commpool_scope_end(commpool_scope scope);

/* ---- Peers ------------------------------------------------------------------------------------------------------ */

/* Lets other devices of this process access the pool's segments, those to come included. NOT_SUPPORTED with the reason
 * where a device cannot reach it, and then none is granted. Granting costs 17 to 20 ms for each GiB and peer. */
COMMPOOL_API commpool_status commpool_pool_grant(commpool_pool pool, const int* devices, size_t count);

/* Takes the access back, after waiting for the devices, at most the pool's deadline for each. FAILED_PRECONDITION on
 * NCCL and CUDA backings, whose access is not the pool's to take. */
COMMPOOL_API commpool_status commpool_pool_revoke(commpool_pool pool, const int* devices, size_t count);

/* ---- Registration with communicators ---------------------------------------------------------------------------- */

/* Registers the pool's segments, those to come included, with a communicator: a fixed pool as local buffers, a
 * symmetric pool as windows. Idempotent. COLLECTIVE for symmetric pools, over home and `communicator` alike: every rank
 * of home calls it, those that `communicator` does not have with null. Disjoint groups (the halves of a split) may be
 * registered in one call, each rank passing its own; ranks register groups that overlap in one order. `communicators`
 * has one for each pool: that of its rank, or null.
 * DISAGREEMENT on all ranks, with nothing registered, where a member passes null or another communicator: before any
 * NCCL call where its size or rank tells, else within deadline_ms, and then abort the communicators that were passed.
 * NOT_SUPPORTED on all ranks where NCCL makes no window: before 2.27, between GPUs that do not reach each other (a null
 * window), and over host memory before 2.30.3. */
COMMPOOL_API commpool_status commpool_pools_register_with(const commpool_pool* pools,
                                                          struct ncclComm* const* communicators, size_t count);

/* Registers segments that a fixed pool has grown since: growth inside an allocation may not call NCCL. Call it on the
 * thread that owns the communicators. `registered` (segments, summed over communicators) may be null. */
COMMPOOL_API commpool_status commpool_pool_register_pending(commpool_pool pool, uint64_t* registered);

/* Ends the registrations with a communicator, after waiting for the device; before ncclCommDestroy. Idempotent.
 * COLLECTIVE for symmetric pools, over home and the communicator as register_with: DISAGREEMENT, with nothing done,
 * where a rank that has the registration passes another or null. A communicator that is split, shrunk or grown keeps
 * its registrations; the new one has none before register_with. */
COMMPOOL_API commpool_status commpool_pools_deregister(const commpool_pool* pools,
                                                       struct ncclComm* const* communicators, size_t count);

/* Drops every handle of a communicator that was aborted, revoked or lost a rank; calls nothing. Not collective, but
 * made on every rank that has it: until then growth and register_with are DISAGREEMENT on all. Idempotent. */
COMMPOOL_API commpool_status commpool_pool_abandon(commpool_pool pool, struct ncclComm* communicator);

/* The window that holds `pointer` on a communicator, and the pointer's offset in it: the same on every rank for blocks
 * of the same place in the pool's sequence of calls. Takes no lock and calls no driver: a few nanoseconds. NOT_FOUND
 * where there is none. */
COMMPOOL_API commpool_status commpool_window_of(const void* pointer, struct ncclComm* communicator,
                                                struct ncclWindow_vidmem** window, uint64_t* offset);

/* Whether NCCL can use NVLink multicast (NVLS) for `bytes` at `pointer` on a communicator of 3 ranks or more: a
 * symmetric pool's window on it, in memory of a device that has multicast, with a handle that other processes import,
 * at multicast's granularity, and not switched off by NCCL_NVLS_ENABLE=0. Where it cannot NCCL falls back without a
 * word: `eligible` is 0 then, and `reason` says why not (else it is empty). It is valid until the thread's next call of
 * this function and may be null. A 1 is no proof: other ranks may lack what this one has, and NCCL chooses by size.
 * INVALID_ARGUMENT for 0 bytes and a null communicator; NOT_FOUND for memory of no pool. */
COMMPOOL_API commpool_status commpool_nvls_eligible(const void* pointer, uint64_t bytes, struct ncclComm* communicator,
                                                    int* eligible, const char** reason);

/* ---- Statistics ------------------------------------------------------------------------------------------------- */

/* Never grows: it lies in other structs. */
typedef struct commpool_counter {
  uint64_t current;
  uint64_t peak; /* since the pool was made or commpool_pool_reset_peaks */
  uint64_t total;
} commpool_counter;

typedef struct commpool_statistics {
  size_t struct_bytes;              /* set by commpool_statistics_init */
  commpool_counter requested_bytes; /* of live blocks, as asked for */
  commpool_counter allocated_bytes; /* of live blocks, rounded up */
  commpool_counter allocated_blocks;
  commpool_counter reserved_bytes; /* of segments: what the driver gave */
  commpool_counter reserved_segments;
  uint64_t free_bytes;    /* reserved and not in live blocks */
  uint64_t pending_bytes; /* of free_bytes: not reusable yet (another stream, or another rank) */
  uint64_t largest_free_block_bytes;
  uint64_t registered_segments; /* summed over communicators */
  uint64_t pending_segments;    /* waiting for commpool_pool_register_pending, likewise */
  uint64_t failed_allocations;
  uint64_t cached_bytes; /* of free_bytes: in threads' caches, and taken from there when the pool runs out */
  uint64_t moved_bytes;  /* of pages that an expandable pool moved */
  uint64_t host_waits;   /* for work on the device, inside allocations */
} commpool_statistics;

/* Peaks are taken when memory leaves or enters the pool's free memory: what a thread's cache hands out and takes back
 * in between may be missing from them. */
COMMPOOL_API commpool_status commpool_pool_statistics(commpool_pool pool, commpool_statistics* statistics);

/* Starts the peaks anew at the current figures. */
COMMPOOL_API commpool_status commpool_pool_reset_peaks(commpool_pool pool);

/* ---- What lies where -------------------------------------------------------------------------------------------- */

typedef enum commpool_block_state {
  COMMPOOL_BLOCK_LIVE = 0,
  COMMPOOL_BLOCK_FREE = 1,
  COMMPOOL_BLOCK_PENDING = 2, /* freed, and not reusable yet: another stream's work, or another rank's free */
  COMMPOOL_BLOCK_CACHED = 3,  /* freed, in a thread's cache */
  COMMPOOL_BLOCK_UNMAPPED = 4 /* addresses of an expandable pool that have no memory now */
} commpool_block_state;

typedef struct commpool_block {
  void* pointer; /* its start */
  uint64_t bytes;
  uint64_t requested_bytes; /* of a live block */
  uint64_t segment;         /* in the order of growth; on a symmetric pool the same one on every rank */
  uint64_t stream;          /* the handle's number; numbers of the library's for default streams */
  commpool_pool pool;       /* 0 once the pool is destroyed */
  int device;
  commpool_block_state state;
} commpool_block;

/* For adapters that are handed any pointer (a framework's deleter, record_stream, export): the live block that holds
 * it. `entry_bytes` is sizeof(*block). NOT_FOUND, with the last error as it was, where there is none. */
COMMPOOL_API commpool_status commpool_block_of(const void* pointer, commpool_block* block, size_t entry_bytes);

/* For snapshots and pictures of memory: a pool's blocks by segment and address, which fill each segment. Writes at most
 * `capacity` entries of `entry_bytes`; `count` is how many there are. `blocks` or `count` may be null. */
COMMPOOL_API commpool_status commpool_pool_blocks(commpool_pool pool, commpool_block* blocks, size_t entry_bytes,
                                                  size_t capacity, size_t* count);

/* ---- Measuring -------------------------------------------------------------------------------------------------- */

/* Counts and times the library's driver calls from now on: the real time of a real driver, the modelled time of the
 * emulator. Before the runtime is open (FAILED_PRECONDITION afterwards): it costs two clock readings a call. */
COMMPOOL_API commpool_status commpool_measure_driver(void);

typedef struct commpool_driver_call {
  const char* name; /* "cuMemCreate"; valid for ever */
  uint64_t count;
  double microseconds; /* of all of them */
} commpool_driver_call;

/* The functions that were called, the dearest first. Writes at most `capacity` of them, each into sizeof(*calls) =
 * `entry_bytes`; `count` is how many there are. `calls` or `count` may be null where it is not wanted, but not both.
 * FAILED_PRECONDITION where nothing is measured. */
COMMPOOL_API commpool_status commpool_driver_calls(commpool_driver_call* calls, size_t entry_bytes, size_t capacity,
                                                   size_t* count);

#ifdef __cplusplus
} /* extern "C" */
#endif

#include "commpool/inline.h"

#endif /* COMMPOOL_COMMPOOL_H_ */
