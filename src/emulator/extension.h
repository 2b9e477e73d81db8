// What the emulated CUDA driver exports beyond cuda.h's own symbols: what `launch`, the emulated NCCL and tests need.
//
// The symbols live in the emulator's libcuda.so.1 only. Nothing links them: callers look them up with dlsym, so that
// the same binary runs on the real driver, where they are absent. All of them may be called from any thread.
#ifndef COMMPOOL_SRC_EMULATOR_EXTENSION_H_
#define COMMPOOL_SRC_EMULATOR_EXTENSION_H_

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// A range of device memory that an operation declares. It must lie in mapped memory that the operation's device may
// access.
typedef struct {
  CUdeviceptr address;
  size_t bytes;
} commpoolEmulatorRange;

// What an operation reads and writes, and how long it takes in virtual time.
typedef struct {
  const char* name;                    // for error messages and traces; copied
  const commpoolEmulatorRange* reads;  // copied
  size_t read_count;
  const commpoolEmulatorRange* writes;  // copied
  size_t write_count;
  double duration_us;  // virtual microseconds of device time
} commpoolEmulatorAccess;

// A kernel: runs on the device's worker with host pointers to the declared ranges, in the order declared.
typedef void (*commpoolEmulatorKernel)(void* context, const void* const* reads, void* const* writes);

// Enqueues `kernel` on `stream`. Fails at once (CUDA_ERROR_ILLEGAL_ADDRESS) where a range is unmapped or not granted;
// the ranges are checked again when it runs, and a range that went away meanwhile is a sticky error and a report.
CUresult commpoolEmulatorLaunch(CUstream stream, const commpoolEmulatorAccess* access, commpoolEmulatorKernel kernel,
                                void* context);

// An operation that ends later than it starts, such as a collective: it holds its stream until it is completed.
typedef struct commpoolEmulatorOperation_st* commpoolEmulatorOperation;

// Called once on the device's worker when the operation reaches the head of its stream. It must not block: it hands the
// work to a thread of its own. `start_us` is the virtual time at which every earlier operation of the stream ended.
typedef void (*commpoolEmulatorStart)(void* context, commpoolEmulatorOperation operation, const void* const* reads,
                                      void* const* writes, double start_us);

CUresult commpoolEmulatorEnqueue(CUstream stream, const commpoolEmulatorAccess* access, commpoolEmulatorStart start,
                                 void* context);

// How an operation that a stream captures is repeated. Both are called under the driver's lock: they may call nothing
// of the driver's.
typedef struct {
  // The context of one replay, made from the captured one when the graph is launched, in the order of the nodes. Null
  // where what it needs is gone: reported, and the replay goes on without it.
  void* (*again)(void* context);
  // Nothing will repeat it any more: frees the captured context.
  void (*end)(void* context);
  // Whether NCCL may have registered the memory under its ranges, and so hold it: 1 or 0. Then a replay over other
  // memory is reported.
  int may_hold_memory;
} commpoolEmulatorReplay;

// On a stream that captures, whose graph owns `context` from then on: `start` gets what `again` makes, at each replay.
// CUDA_ERROR_ILLEGAL_STATE on any other stream; a capturing stream refuses commpoolEmulatorEnqueue.
CUresult commpoolEmulatorCapture(CUstream stream, const commpoolEmulatorAccess* access, commpoolEmulatorStart start,
                                 void* context, const commpoolEmulatorReplay* replay);

// Ends an operation, from any thread, exactly once. `end_us` is its virtual end (joined over ranks by the caller);
// a result other than CUDA_SUCCESS becomes the context's sticky error.
void commpoolEmulatorComplete(commpoolEmulatorOperation operation, double end_us, CUresult result);

// The clock that an operation contributes while it runs, to travel with a collective's messages, and the join of one
// that arrived: what was known there is known here once the operation has ended. The clock covers what came before the
// operation and what it reads, but not what it writes: a rank may end while another still writes its own result.
// Returns the bytes of the clock, which are written where they fit. Empty with races=no.
size_t commpoolEmulatorClock(commpoolEmulatorOperation operation, void* buffer, size_t capacity);
void commpoolEmulatorJoinClock(commpoolEmulatorOperation operation, const void* clock, size_t bytes);

// A pool was told that the capture of `stream` (its origin) allocates from it (1), or that this ended (0). Before or
// after the capture begins; nests. A block that is announced as allocated for a capturing stream without it is
// reported.
void commpoolEmulatorCaptureAnnounced(CUstream stream, int announced);

// The declared description (COMMPOOL_EMULATOR), as parsed: the value of `key`, or null where it is not declared.
const char* commpoolEmulatorSetting(const char* key);

// The host's virtual time in microseconds, and its advance by a modelled host-side cost.
double commpoolEmulatorNow(void);
void commpoolEmulatorAdvance(double microseconds);

// One physical handle's place: what a window registration needs to know about an address.
typedef struct {
  CUdeviceptr base;   // of the mapping that holds the address
  size_t bytes;       // of that mapping
  uint64_t physical;  // identity of the physical memory: equal for two mappings of one handle; 0 for cudaMalloc memory
  int handle_types;   // CUmemAllocationHandleType bits that it was created with
  int location_type;  // CUmemLocationType of the memory
  int location_id;
} commpoolEmulatorMapping;

// CUDA_ERROR_INVALID_VALUE where the address is not mapped.
CUresult commpoolEmulatorFindMapping(CUdeviceptr address, commpoolEmulatorMapping* mapping);

// NCCL registrations hold their range: unmapping or freeing it while held is reported. Returns CUDA_SUCCESS.
CUresult commpoolEmulatorHold(CUdeviceptr address, size_t bytes, const char* holder);
CUresult commpoolEmulatorUnhold(CUdeviceptr address, size_t bytes);

// Whether NCCL could use NVLink multicast (NVLS) on the window that holds `address`: 1 or 0, and then why not; -1 where
// there is no window. The emulated NCCL notes it, without a reason where it could, and forgets it with 0 bytes.
int commpoolEmulatorNvls(CUdeviceptr address, char* reason, size_t capacity);
void commpoolEmulatorNoteNvls(CUdeviceptr address, size_t bytes, const char* reason);

// Pools announce their blocks, because the driver sees segments only. The race checker then names an operation's block.
// An operation submitted on a block that was freed and not allocated again, or that runs past the end of its block into
// another, is reported. `stream` is the one that the block is allocated for (0: the legacy stream). A new block takes
// the place of what was announced there before; memory never announced is not judged.
void commpoolEmulatorBlockAllocated(CUdeviceptr address, size_t bytes, CUstream stream, const char* pool);
void commpoolEmulatorBlockFreed(CUdeviceptr address);

// A pool falls asleep (1) or has woken (0): this segment's memory goes and comes back under its addresses. Meanwhile
// the pool's own copies are not judged by its blocks, and graphs may name the addresses; a replay over them is
// reported.
void commpoolEmulatorSegmentSleeps(CUdeviceptr address, size_t bytes, int asleep);

// A resource of another emulated library (a communicator, a registration), for the leak report.
void commpoolEmulatorNoteResource(const char* kind, const void* identity, const char* description);
void commpoolEmulatorForgetResource(const char* kind, const void* identity);

// A broken rule that hardware would leave undefined: printed to stderr at once, counted, and kept for the report.
void commpoolEmulatorReport(const char* rule, const char* details);

// For tests. --------------------------------------------------------------------------------------------------------

// The next `count` calls of the API function `call` after `skip` more return `result` (a CUresult, or an ncclResult_t
// for nccl* calls) and do nothing.
void commpoolEmulatorInjectFault(const char* call, int skip, int count, int result);
void commpoolEmulatorClearFaults(void);
// Used by the emulated NCCL at the head of each call: the injected result, or -1 to go on. Also counts the call.
int commpoolEmulatorEnterCall(const char* call);

// Whether the stream is in a capture that was not announced, on it or on the capture's origin: 1 or 0.
int commpoolEmulatorIsUnannouncedCapture(CUstream stream);

// How often an API function was called in this process; "*" for all of them.
uint64_t commpoolEmulatorCallCount(const char* call);

// Live resources and broken rules, a line each, written to `buffer` (truncated at capacity, always terminated).
// Return the number of lines.
size_t commpoolEmulatorLeaks(char* buffer, size_t capacity);
size_t commpoolEmulatorReports(char* buffer, size_t capacity);
void commpoolEmulatorClearReports(void);

#ifdef __cplusplus
}
#endif

#endif  // COMMPOOL_SRC_EMULATOR_EXTENSION_H_
