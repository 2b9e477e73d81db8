/* commpool: communicator-aware private memory pools for multi-GPU programs. The C ABI: the one binary interface.
 *
 * pool.h, scope.h and buffer.h beside this file are a C++ skin over it. Included below: inline.h sets defaults and has
 * the calls for one pool, kept.h has sleep and wake. reference.md says more (in share/doc/commpool/include/commpool).
 *
 * Conventions, for every function:
 *  1. A function returns COMMPOOL_OK or why it failed; commpool_last_error() then holds a sentence with the call, the
 *     device, the bytes and the likely cause. Where it fails nothing has changed, unless said; no output is written.
 *  2. Sizes and offsets are bytes. Waits are milliseconds. Devices are CUDA ordinals, NUMA nodes the system's numbers.
 *  3. Pools and scopes are numbers, never reused: a call on one that has ended is an error, not a crash. 0 is none.
 *  4. A caller owns the pools, scopes, captures, holders and blocks that it made, and ends each with its matching call.
 *  5. Streams and communicators are the caller's: commpool_release_stream comes before the end of a promised stream,
 *     any other ends when it likes; commpool_pool_deregister (or abandon) before ncclCommDestroy (or abort).
 *  6. Any thread may call any function. Calls marked COLLECTIVE are made by every rank of the pool's home communicator,
 *     in one order, on the thread that uses the communicator, at the same place among its collectives.
 *  7. An allocation or a free is never COLLECTIVE and never calls NCCL.
 *  8. The calling thread's current CUDA device is the same after a call as before it.
 *  9. struct_bytes, first in a struct that a program fills, is the program's sizeof, which its init function sets: the
 *     library touches no more, and refuses other sizes. `entry_bytes` is the program's sizeof of an array's entries.
 * 10. After fork() the child must not call commpool: CUDA itself does not survive it.
 * 11. Until 1.0 a program runs on the minor version that it was built with: another refuses, in words, to be loaded.
 * 12. COMMPOOL_CONF in the environment, read once, changes defaults of pools: not what a program sets (reference.md).
 */
#ifndef COMMPOOL_COMMPOOL_H_
#define COMMPOOL_COMMPOOL_H_

#include <stddef.h>
#include <stdint.h>

#define COMMPOOL_VERSION_MAJOR 0
#define COMMPOOL_VERSION_MINOR 12
#define COMMPOOL_VERSION_PATCH 0
#define COMMPOOL_VERSION (COMMPOOL_VERSION_MAJOR * 10000 + COMMPOOL_VERSION_MINOR * 100 + COMMPOOL_VERSION_PATCH)

#ifdef __cplusplus
#define COMMPOOL_API extern "C" __attribute__((visibility("default")))
#else
#define COMMPOOL_API __attribute__((visibility("default")))
#endif

struct CUstream_st; /* a cudaStream_t or CUstream; null is the legacy one, with --default-stream per-thread too */
struct ncclComm;    /* what an ncclComm_t points to */
struct ncclWindow_vidmem;

typedef uint64_t commpool_pool; /* these four: see convention 3 */
typedef uint64_t commpool_scope;
typedef uint64_t commpool_capture;
typedef uint64_t commpool_holder;

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
/* COMMPOOL_VERSION of the library that runs: a plugin that opens it by its file asks for its own minor one. */
COMMPOOL_API int commpool_version(void);

/* ---- The runtime ------------------------------------------------------------------------------------------------ */

typedef enum commpool_driver {
  COMMPOOL_DRIVER_CUDA = 0,     /* the real driver, or an error: what the library takes unless told otherwise */
  COMMPOOL_DRIVER_EMULATED = 1, /* the software driver and NCCL */
  COMMPOOL_DRIVER_AUTO = 2      /* the real driver where it has a device, else the emulator: for tools and examples */
} commpool_driver;

/* CALLS: driver calls are counted and timed, the emulator's in modelled time, for commpool_driver_calls. */
typedef enum commpool_measure { COMMPOOL_MEASURE_NOTHING = 0, COMMPOOL_MEASURE_CALLS = 1 } commpool_measure;

/* Opens the driver and NCCL. Optional: the first call that needs them opens the real ones. COMMPOOL_DRIVER=cuda or
 * emulated in the environment goes before `driver`. Under mpirun decide AUTO on one rank and name the result on all.
 * FAILED_PRECONDITION where another driver, or one that is not measured, is open already; NOT_FOUND where there is
 * none, with what was tried. */
COMMPOOL_API commpool_status commpool_initialize(commpool_driver driver, commpool_measure measure);

/* ---- Pools ------------------------------------------------------------------------------------------------------ */

typedef enum commpool_backing {
  COMMPOOL_BACKING_VMM = 0,   /* cuMemCreate: a device's memory or a host NUMA node's; peers and handles as asked */
  COMMPOOL_BACKING_CUDA = 1,  /* cudaMalloc memory: no windows, peers by cudaDeviceEnablePeerAccess */
  COMMPOOL_BACKING_NCCL = 2,  /* ncclMemAlloc: grants every reachable peer at once, 20 to 47 ms for 512 MiB */
  COMMPOOL_BACKING_USER = 3,  /* the functions below */
  COMMPOOL_BACKING_PINNED = 4 /* host memory for CPU and every device, by exact size; on numa_node where that is set */
} commpool_backing;

/* HOST_NUMA: host memory of one NUMA node, mapped to the device; VMM only. */
typedef enum commpool_location { COMMPOOL_LOCATION_DEVICE = 0, COMMPOOL_LOCATION_HOST_NUMA = 1 } commpool_location;

typedef enum commpool_frees {
  /* A freed block serves again: in a symmetric pool after the next reserve, trim or reclaim; in a PINNED pool once the
   * work that its streams had at the free has ended. */
  COMMPOOL_FREES_DEFERRED = 0,
  /* It serves again at once. The program promises that ranks free in the same order between the same allocations, or,
   * PINNED, that the CPU touches a block only in its stream's order. */
  COMMPOOL_FREES_ORDERED = 1
} commpool_frees;

/* PyTorch's pluggable signatures, with a context last. Return null for out of memory. They must not call commpool. */
typedef void* (*commpool_user_allocate)(ptrdiff_t bytes, int device, struct CUstream_st* stream, void* context);
typedef void (*commpool_user_free)(void* pointer, ptrdiff_t bytes, int device, struct CUstream_st* stream,
                                   void* context);

typedef enum commpool_mode {
  COMMPOOL_MODE_FIXED = 0,     /* segments never move: what registration and peers' imports need */
  COMMPOOL_MODE_EXPANDABLE = 1 /* free pages move to where a request needs them; VMM only, never registered */
} commpool_mode;

/* EAGER: an expandable pool moves free pages before it makes new ones: least memory. UNDER_PRESSURE: only where a limit
 * or the device leaves no room to grow: least driver time. */
typedef enum commpool_moves { COMMPOOL_MOVES_EAGER = 0, COMMPOOL_MOVES_UNDER_PRESSURE = 1 } commpool_moves;
/* Whether each stream that is passed to the pool counts as promised (commpool_promise_stream). */
typedef enum commpool_streams { COMMPOOL_STREAMS_MAY_DIE = 0, COMMPOOL_STREAMS_OUTLIVE = 1 } commpool_streams;
/* ONE_AT_A_TIME: graphs that captured with the pool share memory, temporaries of the largest in place of all. What one
 * wrote holds until another runs, none runs beside another, by promise; captured one at a time. Not symmetric. */
typedef enum commpool_replays { COMMPOOL_REPLAYS_CONCURRENT = 0, COMMPOOL_REPLAYS_ONE_AT_A_TIME = 1 } commpool_replays;
typedef enum commpool_grants { COMMPOOL_GRANTS_READ_WRITE = 0, COMMPOOL_GRANTS_READ = 1 } commpool_grants;

/* A caller's all-gather (MPI, a torch store) of `bytes` bytes of every rank, rank 0's first. Returns 0, or non-zero
 * where it failed, as where it throws. Called in COLLECTIVE calls alone, on their thread; of commpool it may call
 * commpool_free alone. */
typedef int (*commpool_all_gather)(const void* sent, void* received, size_t bytes, void* context);

/* A rank of home is lost: called once a home, on a thread of the library's; it may call NCCL, not commpool. Where
 * `in_flight` is not 0 a collective on the pool's windows may wait for that rank for ever: end the process. */
typedef void (*commpool_on_lost_rank)(int rank, int in_flight, void* context);

/* The options that COMMPOOL_CONF may set: bits of commpool_pool_options.given. */
typedef enum commpool_option {
  COMMPOOL_OPTION_BACKING = 1,
  COMMPOOL_OPTION_MODE = 2,
  COMMPOOL_OPTION_MOVES = 4,
  COMMPOOL_OPTION_DEADLINE = 8,
  COMMPOOL_OPTION_ALIGNMENT = 16,
  COMMPOOL_OPTION_SEGMENT = 32,
  COMMPOOL_OPTION_GRANULARITY = 64,
  COMMPOOL_OPTION_RELEASE_THRESHOLD = 128,
  COMMPOOL_OPTION_LIMIT = 256,
  COMMPOOL_OPTION_GRANTS = 512,
  COMMPOOL_OPTION_BUDGET = 1024
} commpool_option;

typedef struct commpool_pool_options {
  size_t struct_bytes;        /* set by commpool_pool_options_init */
  const char* name;           /* for messages and statistics; copied; default "pool" */
  int device;                 /* whose allocations it serves; default 0 */
  commpool_backing backing;   /* default VMM: the one that can do everything NCCL asks for */
  commpool_location location; /* default DEVICE */
  int numa_node;              /* of a HOST_NUMA or PINNED pool; default -1: nearest to the device, PINNED: any */

  struct ncclComm* symmetric_across; /* home communicator: the pool is symmetric. Default null: a fixed pool */
  commpool_all_gather all_gather;    /* default null: TCP, its address sent once over the home communicator */
  void* all_gather_context;
  commpool_frees frees; /* of a symmetric or PINNED pool; default DEFERRED */
  commpool_mode mode;   /* of a pool that is not symmetric; default FIXED */
  commpool_moves moves; /* of an expandable pool; default EAGER */
  uint64_t deadline_ms; /* of every wait for other ranks, and for the device (half, where ranks wait); default 60000 */
  const int* peers;     /* other devices of this process that may access the pool; default none */
  size_t peer_count;
  uint64_t alignment_bytes;   /* of every block, a power of two from 512 to the granularity; default 512 */
  uint64_t segment_bytes;     /* least size of a segment; default 0: 2 MiB, 8 MiB or the request, by its size */
  uint64_t granularity_bytes; /* segments are multiples of it, a power of two; default 0: the backing's, the least */
  uint64_t release_threshold_bytes; /* free memory beyond it goes back; no threads' caches; default UINT64_MAX */
  uint64_t limit_bytes;             /* of all segments; default UINT64_MAX: the device's memory is the limit */

  commpool_user_allocate user_allocate; /* of a USER pool */
  commpool_user_free user_free;
  void* user_context;                 /* must outlive the pool's last block */
  commpool_on_lost_rank on_lost_rank; /* of a symmetric pool; default null */
  void* lost_rank_context;
  uint64_t given;           /* commpool_option bits: the program means these, also where as init sets them; default 0 */
  commpool_streams streams; /* default MAY_DIE; symmetric ORDERED frees take promised ones alone */
  commpool_replays replays; /* of graphs that captured with it; default CONCURRENT */
  commpool_grants grants;   /* what peers may do; default READ_WRITE; READ is for VMM pools */
  const char* budget;       /* of commpool_set_budget; copied; default null: none */
} commpool_pool_options;

/* Each commpool_pools_* is also there for one pool, inline: commpool_pool_reserve(pool, bytes). A thread that owns the
 * communicators of several ranks makes a COLLECTIVE call once, for all pools that one commpool_pools_create made for
 * one home: FAILED_PRECONDITION for some of them only. Each pool's part, all_gather too, runs on a thread of the
 * library's, its device current. Returns the first pool's failure. INVALID_ARGUMENT for none and one passed twice. */

/* Makes `count` pools, or none; no segment yet. COLLECTIVE over symmetric_across where that is set: one rank's refusal
 * is every rank's. INVALID_ARGUMENT for an unknown device, backing or option, or options that exclude each other;
 * NOT_SUPPORTED, with the reason, for what this driver, device or NCCL cannot do; DISAGREEMENT where ranks ask for
 * different pools; DEADLINE_EXCEEDED where one does not come (if it is lost, abort the communicator). */
COMMPOOL_API commpool_status commpool_pools_create(const commpool_pool_options* options, size_t count,
                                                   commpool_pool* pools);

/* Ends the handle; the pool serves no more. Segments live until the last block is freed and a call finds its work done;
 * registered ones, with a line on stderr, until the process ends. Calls no NCCL. INVALID_ARGUMENT: a default pool. */
COMMPOOL_API commpool_status commpool_pool_destroy(commpool_pool pool);

/* The clean end: waits for the device, deregisters everywhere, gives segments without live blocks back and closes the
 * pool to allocation; the handle stays. Idempotent. COLLECTIVE for symmetric pools: FAILED_PRECONDITION on all ranks,
 * and nothing is done, where one has live blocks. Closes a pool that has diverged (allocations and COLLECTIVE calls end
 * with DISAGREEMENT) too; where close() is the first to find that out, call it again. */
COMMPOOL_API commpool_status commpool_pools_close(const commpool_pool* pools, size_t count);

/* The pool that serves a device's allocations outside every scope: VMM, else CUDA; made at its first use. It cannot be
 * closed, and what it holds at exit the driver takes back: a leak check counts that unless it was trimmed. */
COMMPOOL_API commpool_status commpool_default_pool(int device, commpool_pool* pool);

/* Makes free memory for at least `bytes` in one piece, by growing where the free memory does not suffice. COLLECTIVE
 * for symmetric pools: where one rank fails all return its error, and no pool has grown; frees that all ranks have made
 * have taken effect. DISAGREEMENT where ranks ask for different bytes, which changes nothing, or made different calls
 * before; DEADLINE_EXCEEDED where a rank does not come. */
COMMPOOL_API commpool_status commpool_pools_reserve(const commpool_pool* pools, size_t count, uint64_t bytes);

/* Lets deferred frees take effect that every rank has made. COLLECTIVE. A fixed pool returns OK and does nothing.
 * `reclaimed` has a place for each pool's bytes, or is null. */
COMMPOOL_API commpool_status commpool_pools_reclaim(const commpool_pool* pools, size_t count, uint64_t* reclaimed);
/* Gives segments without live blocks back to the driver until at most `keep_bytes` stay reserved; a registered fixed
 * pool keeps registered ones. COLLECTIVE for symmetric pools. Waits for the device. released_bytes as `reclaimed`. */
COMMPOOL_API commpool_status commpool_pools_trim(const commpool_pool* pools, size_t count, uint64_t keep_bytes,
                                                 uint64_t* released_bytes);
/* Compares the pool's calls so far between the ranks. COLLECTIVE. A fixed pool returns OK. DISAGREEMENT names the first
 * call that differs and two ranks that made different ones; the pool has then diverged (commpool_pools_close). */
COMMPOOL_API commpool_status commpool_pools_verify(const commpool_pool* pools, size_t count);

/* ---- Allocation ------------------------------------------------------------------------------------------------- */

#define COMMPOOL_CURRENT_DEVICE (-1) /* the stream's device; for the default streams this thread's current one */
#define COMMPOOL_NO_STREAM ((struct CUstream_st*)8)

/* Allocates from the innermost open scope that catches it, else from the device's default pool. The block may be used
 * on `stream` at once, on others after the caller ordered them behind it. INVALID_ARGUMENT for zero bytes and sizes
 * that overflow; OUT_OF_MEMORY with a table of who holds what; EXHAUSTED for a full symmetric pool, with the bytes that
 * commpool_pool_reserve needs for this request, the same on every rank: ranks compare refused calls too. */
COMMPOOL_API commpool_status commpool_allocate(int device, uint64_t bytes, struct CUstream_st* stream, void** pointer);
/* From one pool, whatever scopes are open. The stream is of its device, or of a peer that reaches it. NO_STREAM
 * (PINNED, DEFERRED frees): recorded streams alone use the block. */
COMMPOOL_API commpool_status commpool_pool_allocate(commpool_pool pool, uint64_t bytes, struct CUstream_st* stream,
                                                    void** pointer);
/* For a framework's router: the same where a scope catches it, else NOT_CAUGHT, with last error and `pointer` as they
 * were. One load and a branch where no scope is open in the process. `device` may not be COMMPOOL_CURRENT_DEVICE. */
COMMPOOL_API commpool_status commpool_allocate_in_scope(int device, uint64_t bytes, struct CUstream_st* stream,
                                                        void** pointer);
/* Gives a block back, from any thread. It is reused in the order of work on the stream of its allocation and on those
 * named by commpool_record_stream. Null is OK. NOT_FOUND for what is not the start of a live block. */
COMMPOOL_API commpool_status commpool_free(void* pointer);
/* Notes that `stream` uses the block too. Call it after submitting that work and before the free. NOT_FOUND as free,
 * for null too. */
COMMPOOL_API commpool_status commpool_record_stream(void* pointer, struct CUstream_st* stream);
/* The stream outlives its use, so others take what it freed after a device-side wait. What a stream without a promise
 * freed others get once a call has passed it again, or the host has waited. Default streams are promised. */
COMMPOOL_API commpool_status commpool_promise_stream(struct CUstream_st* stream);
/* Waits for a stream's work, then forgets it and its promise. A free waits for its later work only if recorded. */
COMMPOOL_API commpool_status commpool_release_stream(struct CUstream_st* stream);

/* Functions without a context, as frameworks take them: torch.cuda.MemPool's pluggable allocator, vLLM, SGLang. */
typedef void* (*commpool_plain_allocate)(size_t bytes, int device, struct CUstream_st* stream);
typedef void (*commpool_plain_free)(void* pointer, size_t bytes, int device, struct CUstream_st* stream);

/* A pair that allocates from one pool, whatever scopes are open; the same at each call for a pool. `allocate` returns
 * null for 0 bytes, another device than the pool's, and where it fails (commpool_last_error); not to be called once the
 * pool is destroyed. `release` frees a block of any pool, at any time. OUT_OF_MEMORY beyond 256 such pools alive. */
COMMPOOL_API commpool_status commpool_pool_functions(commpool_pool pool, commpool_plain_allocate* allocate,
                                                     commpool_plain_free* release);

/* ---- Stream capture --------------------------------------------------------------------------------------------- */

/* Announces that `stream` is being captured; comes after cuStreamBeginCapture. Until commpool_capture_end the pool
 * serves the capture's streams without registration or wait; only unregistered pools grow. What it serves belongs
 * to the graph until the graph and everything instantiated from it is destroyed; its segments stay until then. While
 * the capture is open COLLECTIVE calls of a symmetric pool other than reclaim, and while the graph is alive trim,
 * deregister and close (of a registered fixed pool the last two), are FAILED_PRECONDITION on all ranks.
 * FAILED_PRECONDITION where the stream is not being captured; NOT_SUPPORTED where the driver knows no user objects, and
 * for a symmetric pool with frees = ORDERED. */
COMMPOOL_API commpool_status commpool_capture_begin(commpool_pool pool, struct CUstream_st* stream,
                                                    commpool_capture* capture);
/* Ends it, before or after cuStreamEndCapture, also after one that failed. NOT_FOUND for one that has ended. Where
 * nobody promised the stream, all frees before count as the graph's. */
COMMPOOL_API commpool_status commpool_capture_end(commpool_capture capture);

/* ---- Limits and other allocators -------------------------------------------------------------------------------- */

typedef enum commpool_device_bound {
  /* The most that all pools of a device may reserve together; default UINT64_MAX: no limit. What is reserved stays. */
  COMMPOOL_DEVICE_LIMIT = 0,
  /* What pools leave to others of a device's memory, such as NCCL, cuBLAS and graphs; default 0. Where growth would
   * leave less, idle memory of pools goes back first, then it is OUT_OF_MEMORY; reclaim and trim give back what is
   * lacking. A wish, no reservation: the driver is asked at each growth, and another process may take the memory
   * meanwhile. A symmetric pool looks in its collective calls alone. */
  COMMPOOL_DEVICE_HEADROOM = 1
} commpool_device_bound;
COMMPOOL_API commpool_status commpool_set_device_bound(int device, commpool_device_bound bound, uint64_t bytes);
/* The most that the pools of a device may reserve together that name this budget (commpool_pool_options.budget), beside
 * their own limits and the device's: a device's memory, divided among the parts of a program. UINT64_MAX: no limit,
 * only counted. It is made by its first call, before its pools; what is reserved stays. INVALID_ARGUMENT for an empty
 * name. */
COMMPOOL_API commpool_status commpool_set_budget(const char* name, uint64_t bytes);
/* What pools of a budget reserve on a device, the most that they ever reserved, and the lower one of its limit and the
 * device's; of all pools of the device where `budget` is null. Outputs may be null. NOT_FOUND where nobody made it. */
COMMPOOL_API commpool_status commpool_budget_use(int device, const char* budget, uint64_t* reserved_bytes,
                                                 uint64_t* peak_bytes, uint64_t* limit_bytes);

typedef enum commpool_device_work { COMMPOOL_DEVICE_MAY_WORK = 0, COMMPOOL_DEVICE_IDLE = 1 } commpool_device_work;
/* For a call of anybody that ran out of memory, on its thread: the device's pools release what is idle, known by
 * queries alone. Nothing waits. Symmetric pools release nothing, nor do those of NCCL and USER; of CUDA only where
 * `work` says that no stream works. `bytes`, which may be null, is how many went back. */
COMMPOOL_API commpool_status commpool_release_idle(int device, commpool_device_work work, uint64_t* bytes);

/* Another allocator of the process, asked when a device runs out and named in the error. Its functions, which may be
 * null, are called on an allocating thread outside every lock, and must not call commpool: cached_bytes is what it
 * holds and does not use; release gives at least `bytes` back to the driver, if it can, and returns how many. */
typedef struct commpool_holder_options {
  size_t struct_bytes; /* set by commpool_holder_options_init */
  const char* name;    /* for the error's table; copied; default "other" */
  uint64_t (*cached_bytes)(int device, void* context);
  uint64_t (*release)(int device, uint64_t bytes, void* context);
  void* context; /* must outlive commpool_remove_holder */
} commpool_holder_options;

COMMPOOL_API commpool_status commpool_add_holder(const commpool_holder_options* options, commpool_holder* holder);
/* Returns when no call of its functions is running any more. NOT_FOUND for one that was removed. */
COMMPOOL_API commpool_status commpool_remove_holder(commpool_holder holder);

/* ---- Scopes: begin/end-allocate-to-pool ------------------------------------------------------------------------- */

typedef enum commpool_filter {
  COMMPOOL_FILTER_THREAD = 0, /* allocations of the thread that began the scope */
  COMMPOOL_FILTER_STREAM = 1, /* allocations for one stream, from any thread (backward threads included) */
  COMMPOOL_FILTER_PROCESS = 2 /* every allocation; symmetric pools refuse it */
} commpool_filter;

typedef enum commpool_exhaustion {
  COMMPOOL_EXHAUSTION_ERROR = 0,     /* the allocation fails */
  COMMPOOL_EXHAUSTION_NEXT_SCOPE = 1 /* the next scope out that catches it, at last the default pool, serves it */
} commpool_exhaustion;

typedef struct commpool_scope_options {
  size_t struct_bytes;            /* set by commpool_scope_options_init */
  commpool_filter filter;         /* default THREAD */
  commpool_exhaustion exhaustion; /* default ERROR; a pool that is not symmetric hands nothing to one that is */
  struct CUstream_st* stream;     /* of a STREAM filter */
  uint64_t min_bytes;             /* smaller allocations are not caught; default 0 */
  uint64_t max_bytes;             /* larger ones neither; default UINT64_MAX */
} commpool_scope_options;

/* From now on allocations that the filter and the sizes catch go to the pool, where they are for its device. Scopes
 * nest: of those that catch one the one begun last wins, whatever its filter. `options` may be null: this thread.
 * INVALID_ARGUMENT for a min_bytes above max_bytes and unknown values. */
COMMPOOL_API commpool_status commpool_scope_begin(commpool_pool pool, const commpool_scope_options* options,
                                                  commpool_scope* scope);
/* A THREAD scope of another thread, or not the innermost, ends all the same: FAILED_PRECONDITION, and a warning in the
 * log, for what was allocated meanwhile may lie elsewhere than was meant. NOT_FOUND for one that has ended. */
COMMPOOL_API commpool_status commpool_scope_end(commpool_scope scope);

/* ---- Peers ------------------------------------------------------------------------------------------------------ */

typedef enum commpool_access { COMMPOOL_ACCESS_GRANTED = 0, COMMPOOL_ACCESS_REVOKED = 1 } commpool_access;

/* Whether other devices of this process may access the pool's segments, those to come too, as `grants` says. GRANTED:
 * NOT_SUPPORTED, with the reason, where a device cannot reach it: none is granted then. Costs 17 to 20 ms for each GiB
 * and peer. REVOKED waits for each device at most deadline_ms; FAILED_PRECONDITION on NCCL and CUDA backings. */
COMMPOOL_API commpool_status commpool_pool_set_access(commpool_pool pool, const int* devices, size_t count,
                                                      commpool_access access);

/* ---- Registration with communicators ---------------------------------------------------------------------------- */

/* Registers the pool's segments, those to come included, with a communicator: a fixed pool as local buffers, a
 * symmetric pool as windows. Idempotent. COLLECTIVE for symmetric pools, over home and `communicator` alike: ranks of
 * home that it does not have pass null; disjoint groups may be registered in one call. `communicators` has one for each
 * pool. DISAGREEMENT on all ranks, with nothing registered, where a member passes null or another communicator: at once
 * where sizes tell, else within deadline_ms, and then abort those that were passed. NOT_SUPPORTED on all ranks where
 * NCCL makes no window: between GPUs that do not reach each other, over host memory before 2.30.3. */
COMMPOOL_API commpool_status commpool_pools_register_with(const commpool_pool* pools,
                                                          struct ncclComm* const* communicators, size_t count);

/* Registers segments that a fixed pool has grown since, on the thread that owns the communicators. `registered`, in
 * segments summed over communicators, may be null. */
COMMPOOL_API commpool_status commpool_pool_register_pending(commpool_pool pool, uint64_t* registered);

/* Ends the registrations with a communicator, after waiting for the device; before ncclCommDestroy. Idempotent.
 * COLLECTIVE as register_with: DISAGREEMENT, with nothing done, where a rank that has it passes another or null. */
COMMPOOL_API commpool_status commpool_pools_deregister(const commpool_pool* pools,
                                                       struct ncclComm* const* communicators, size_t count);

/* ENDED: it was aborted or destroyed, so its handles are dropped, and NCCL is not called. A revoked one is ALIVE. */
typedef enum commpool_life { COMMPOOL_LIFE_ALIVE = 0, COMMPOOL_LIFE_ENDED = 1 } commpool_life;

/* After a loss: ends this rank's registrations with a communicator, without any other rank. Then abort one that is
 * alive, and close (local, once all are abandoned). Waits for the device, at most deadline_ms. Not collective, but made
 * on every rank that has it: until then growth and register_with are DISAGREEMENT on all. Idempotent. */
COMMPOOL_API commpool_status commpool_pool_abandon(commpool_pool pool, struct ncclComm* communicator,
                                                   commpool_life life);

/* Moves symmetric pools to other homes, smaller or larger: after a loss or a deadline, or when ranks join, which call
 * create over that communicator. COLLECTIVE over it; those with fewer segments make the others'. FAILED_PRECONDITION on
 * all, with their number, while blocks, graphs or registrations are left. Where it fails the pools have no home. */
COMMPOOL_API commpool_status commpool_pools_rehome(const commpool_pool* pools, struct ncclComm* const* communicators,
                                                   size_t count);
/* The first rank of home that is known to be lost; -1: none. To ask before a launch: some nanoseconds. */
COMMPOOL_API commpool_status commpool_pool_lost_rank(commpool_pool pool, int* rank);

/* The window that holds `pointer` on a communicator, and its offset there, the same on every rank for blocks of the
 * same place in the sequence of calls. No driver call: tens of nanoseconds. NOT_FOUND where there is none. */
COMMPOOL_API commpool_status commpool_window_of(const void* pointer, struct ncclComm* communicator,
                                                struct ncclWindow_vidmem** window, uint64_t* offset);

/* Whether NCCL can use NVLink multicast (NVLS) for `bytes` at `pointer` on a communicator of 3 ranks or more. Where
 * `eligible` is 0 `reason` says why (else it is empty), valid until the thread's next call of this; it may be null. A 1
 * is no proof: NCCL chooses by size, and other ranks may lack what this one has. INVALID_ARGUMENT for 0 bytes and a
 * null communicator; NOT_FOUND for memory of no pool. */
COMMPOOL_API commpool_status commpool_nvls_eligible(const void* pointer, uint64_t bytes, struct ncclComm* communicator,
                                                    int* eligible, const char** reason);

/* ---- Statistics and blocks -------------------------------------------------------------------------------------- */

/* Never grows: it lies in other structs. */
typedef struct commpool_counter {
  uint64_t current; /* now */
  uint64_t peak;    /* since the pool was made or RESET */
  uint64_t total;   /* of all that came, all-time */
} commpool_counter;

typedef struct commpool_statistics {
  size_t struct_bytes;                /* set by commpool_statistics_init */
  commpool_counter requested_bytes;   /* of live blocks, as asked for */
  commpool_counter allocated_bytes;   /* of live blocks, rounded up */
  commpool_counter allocated_blocks;  /* that are live */
  commpool_counter reserved_bytes;    /* of segments: what the driver gave */
  commpool_counter reserved_segments; /* or pages of an expandable pool; total: made so far */
  uint64_t free_bytes;                /* reserved and not in live blocks; some of it only for some streams */
  uint64_t pending_bytes;             /* of free_bytes: behind recorded streams, ranks, importers or a graph */
  uint64_t largest_free_block_bytes;  /* free in one piece, at most */
  uint64_t registered_segments;       /* summed over communicators and registrars */
  uint64_t pending_segments;          /* waiting for commpool_pool_register_pending, likewise */
  uint64_t failed_allocations;        /* that this pool had no memory for, or refused */
  uint64_t cached_bytes; /* of free_bytes: in threads' caches, and taken from there when the pool runs out */
  uint64_t moved_bytes;  /* of pages that an expandable pool moved */
  uint64_t host_waits;   /* for work on the device, inside allocations */
  uint64_t held_bytes;   /* of windows whose communicator ended first: NCCL before 2.29.7 keeps them for good */
  uint64_t asleep_bytes; /* of reserved_bytes: given back while the pool sleeps */
  uint64_t kept_bytes;   /* on the host or in files, with what the pool keeps (kept.h) */
} commpool_statistics;

/* RESET: once they are read every peak becomes what is current. */
typedef enum commpool_peaks { COMMPOOL_PEAKS_STAY = 0, COMMPOOL_PEAKS_RESET = 1 } commpool_peaks;

/* Peaks may miss what a thread's cache handed out and took back between two changes of the pool's free memory. */
COMMPOOL_API commpool_status commpool_pool_statistics(commpool_pool pool, commpool_peaks peaks,
                                                      commpool_statistics* statistics);

typedef enum commpool_block_state {
  COMMPOOL_BLOCK_LIVE = 0,
  COMMPOOL_BLOCK_FREE = 1,    /* for `stream` at once; for others behind its work, or its next call if not promised */
  COMMPOOL_BLOCK_PENDING = 2, /* freed, and behind recorded streams, other ranks, importers or a graph */
  COMMPOOL_BLOCK_CACHED = 3,  /* freed, in a thread's cache */
  COMMPOOL_BLOCK_UNMAPPED = 4 /* addresses of an expandable pool that have no memory now */
} commpool_block_state;

typedef struct commpool_block {
  void* pointer;              /* its start */
  uint64_t bytes;             /* its size, rounded up */
  uint64_t requested_bytes;   /* of a live block */
  uint64_t segment;           /* in the order of growth; on a symmetric pool the same one on every rank */
  uint64_t stream;            /* its handle then; numbers of the library's for default streams; 0 where long gone */
  commpool_pool pool;         /* 0 once the pool is destroyed */
  int device;                 /* the pool's */
  commpool_block_state state; /* live, free, pending, cached or unmapped */
} commpool_block;

/* The live block that holds any pointer. NOT_FOUND, with the last error as it was, where there is none. */
COMMPOOL_API commpool_status commpool_block_of(const void* pointer, commpool_block* block, size_t entry_bytes);

/* A pool's blocks by segment and address, which fill each segment, for pictures of memory. Writes at most `capacity`
 * entries; `count` is how many there are. `blocks` or `count` may be null. */
COMMPOOL_API commpool_status commpool_pool_blocks(commpool_pool pool, commpool_block* blocks, size_t entry_bytes,
                                                  size_t capacity, size_t* count);

/* ---- Configuration and measuring -------------------------------------------------------------------------------- */

typedef struct commpool_setting {
  const char* pool;   /* the name of the pool that it is for; "": every pool */
  const char* key;    /* as in COMMPOOL_CONF: "limit"; of a pool also "state", "memory", "segments", "access" */
  const char* value;  /* "2GiB"; "open", "asleep" or "closed"; the traits of registrar.h; who, as "0 1:read cpu" */
  const char* source; /* "default", "code", or what COMMPOOL_CONF says: "COMMPOOL_CONF gradients.limit:2GiB" */
} commpool_setting;

/* What is in force and where it came from, for a launcher's log and reports of faults: a pool's options, or, for pool
 * 0, what COMMPOOL_CONF and defaults give pools to be made; that opens no driver, and its first line has the key
 * "driver": what is in use, "CUDA driver 13.0, 4 devices, NCCL 2.28.9", empty before one is open. Else as
 * commpool_pool_blocks. Texts are valid until the thread's next call of this. INVALID_ARGUMENT for a wrong
 * COMMPOOL_CONF, with what is known. */
COMMPOOL_API commpool_status commpool_configuration(commpool_pool pool, commpool_setting* settings, size_t entry_bytes,
                                                    size_t capacity, size_t* count);

typedef struct commpool_driver_call {
  const char* name; /* "cuMemCreate"; valid for ever */
  uint64_t count;
  double microseconds; /* of all of them */
} commpool_driver_call;

/* The functions that were called, the dearest first; as commpool_pool_blocks, but `calls` and `count` not both null.
 * FAILED_PRECONDITION where nothing is measured. */
COMMPOOL_API commpool_status commpool_driver_calls(commpool_driver_call* calls, size_t entry_bytes, size_t capacity,
                                                   size_t* count);

#include "commpool/inline.h"
#include "commpool/kept.h"

#endif /* COMMPOOL_COMMPOOL_H_ */
