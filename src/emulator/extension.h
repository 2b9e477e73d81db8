// What the emulated CUDA driver exports beyond the symbols of cuda.h, for `launch`, the emulated NCCL and tests.
//
// Only the emulator's libcuda.so.1 has these symbols. Nothing links them: callers look them up with dlsym, so the same
// binary runs on the real driver, which lacks them. Any thread may call any of them.
#pragma once

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// A range of device memory that an operation declares. It must be mapped, and the operation's device must have access.
typedef struct {
  CUdeviceptr address;
  size_t bytes;
} commpoolEmulatorRange;

// What an operation reads and writes, and how long it takes in virtual time.
typedef struct {
  const char* name;                    // for error messages and traces; the call copies it
  const commpoolEmulatorRange* reads;  // the call copies them
  size_t read_count;
  const commpoolEmulatorRange* writes;  // the call copies them
  size_t write_count;
  double duration_us;  // virtual microseconds of device time
} commpoolEmulatorAccess;

// A kernel. The device's worker calls it with host pointers to the declared ranges, in the declared order.
typedef void (*commpoolEmulatorKernel)(void* context, const void* const* reads, void* const* writes);

// Appends `kernel` to `stream`. It fails at once (CUDA_ERROR_ILLEGAL_ADDRESS) if a range is unmapped or not granted.
// The emulator checks the ranges again when the kernel runs. A range that is gone by then is reported, and is a sticky
// error.
CUresult commpoolEmulatorLaunch(CUstream stream, const commpoolEmulatorAccess* access, commpoolEmulatorKernel kernel,
                                void* context);

// An operation that ends later than it starts, such as a collective. It holds its stream until somebody completes it.
typedef struct commpoolEmulatorOperation_st* commpoolEmulatorOperation;

// The device's worker calls it once, when the operation is the first of its stream. It must not block: it hands the
// work to another thread. `start_us` is the virtual time when all earlier operations of the stream had ended.
typedef void (*commpoolEmulatorStart)(void* context, commpoolEmulatorOperation operation, const void* const* reads,
                                      void* const* writes, double start_us);

CUresult commpoolEmulatorEnqueue(CUstream stream, const commpoolEmulatorAccess* access, commpoolEmulatorStart start,
                                 void* context);

// How to repeat an operation that a stream captures. The driver calls both functions under its lock, so they may not
// call the driver.
typedef struct {
  // Makes the context of one replay from the captured one, when the graph is launched, in the order of the nodes.
  // Returns null if something that it needs is gone: the driver reports that, and the replay goes on without this
  // operation.
  void* (*again)(void* context);
  // Frees the captured context. Nothing repeats the operation after that.
  void (*end)(void* context);
  // 1 if NCCL may have registered the memory under its ranges, and so keeps it; else 0. If 1, the driver reports a
  // replay over other memory.
  int may_hold_memory;
  // 1 if cuGraphNodeGetType tells of a kernel; 0 if of a copy.
  int is_kernel;
} commpoolEmulatorReplay;

// The same for a stream that captures. The graph owns `context` from then on, and at each replay `start` gets what
// `again` makes. It fails with CUDA_ERROR_ILLEGAL_STATE on a stream that does not capture; commpoolEmulatorEnqueue
// refuses a stream that does.
CUresult commpoolEmulatorCapture(CUstream stream, const commpoolEmulatorAccess* access, commpoolEmulatorStart start,
                                 void* context, const commpoolEmulatorReplay* replay);

// Ends an operation, exactly once, from any thread. `end_us` is its virtual end, which the caller has joined over the
// ranks. A result other than CUDA_SUCCESS becomes the context's sticky error.
void commpoolEmulatorComplete(commpoolEmulatorOperation operation, double end_us, CUresult result);

// The vector clock that a running operation contributes, to travel with the messages of a collective; and the join of a
// clock that arrived. This process knows everything in a joined clock once the operation has ended. The contributed
// clock covers what came before the operation and what it reads, but not what it writes: a rank may end while another
// rank still writes its own result. Returns the size of the clock, and writes it if it fits. Empty with races=no.
size_t commpoolEmulatorClock(commpoolEmulatorOperation operation, void* buffer, size_t capacity);
void commpoolEmulatorJoinClock(commpoolEmulatorOperation operation, const void* clock, size_t bytes);

// Tells that a pool serves the capture that `stream` is in (1), or that it no longer does (0). The call may come
// before or after the capture begins, and it nests. Without it the emulator reports a block that is announced for a
// capturing stream.
void commpoolEmulatorCaptureAnnounced(CUstream stream, int announced);

// Returns the value of `key` in COMMPOOL_EMULATOR; null if the variable does not declare it.
const char* commpoolEmulatorSetting(const char* key);

// The host's virtual time in microseconds, and a step forward by a modelled host-side cost.
double commpoolEmulatorNow(void);
void commpoolEmulatorAdvance(double microseconds);

// The place of one physical handle: what the registration of a window must know about an address.
typedef struct {
  CUdeviceptr base;  // start of the mapping that holds the address
  size_t bytes;      // of that mapping
  // identity of the physical memory: two mappings of one handle have the same; 0 for cudaMalloc memory
  uint64_t physical;
  int handle_types;   // CUmemAllocationHandleType bits that the program created it with
  int location_type;  // CUmemLocationType of the memory
  int location_id;
} commpoolEmulatorMapping;

// Returns CUDA_ERROR_INVALID_VALUE if the address is not mapped.
CUresult commpoolEmulatorFindMapping(CUdeviceptr address, commpoolEmulatorMapping* mapping);

// Marks a range that an NCCL registration holds. The emulator then reports a call that unmaps or frees it. Returns
// CUDA_SUCCESS.
CUresult commpoolEmulatorHold(CUdeviceptr address, size_t bytes, const char* holder);
CUresult commpoolEmulatorUnhold(CUdeviceptr address, size_t bytes);

// Says whether NCCL could use NVLink multicast (NVLS) on the window that holds `address`: 1; 0 and the reason; -1 if
// there is no window. The emulated NCCL notes the answer for each window, with an empty reason for yes; 0 bytes remove
// the note.
int commpoolEmulatorNvls(CUdeviceptr address, char* reason, size_t capacity);
void commpoolEmulatorNoteNvls(CUdeviceptr address, size_t bytes, const char* reason);

// Pools announce their blocks, because the driver sees only segments. So the race checker can name an operation's
// block, and the emulator reports an operation on a freed block, or one that runs past the end of its block into
// another. `stream` is the stream that the block is allocated for (0: the legacy stream; 8: no stream). A new block
// replaces what was announced there before. Memory that was never announced is not checked.
void commpoolEmulatorBlockAllocated(CUdeviceptr address, size_t bytes, CUstream stream, const char* pool);
void commpoolEmulatorBlockFreed(CUdeviceptr address);

// Tells that a pool falls asleep (1) or has woken (0): the memory of this segment goes and comes back at the same
// addresses. While it is away the blocks do not restrict the pool's own copies, and graphs may name the addresses, but
// the emulator reports a replay over them.
void commpoolEmulatorSegmentSleeps(CUdeviceptr address, size_t bytes, int asleep);

// Notes a resource of another emulated library (a communicator, a registration) for the leak report.
void commpoolEmulatorNoteResource(const char* kind, const void* identity, const char* description);
void commpoolEmulatorForgetResource(const char* kind, const void* identity);

// Reports a broken rule that real hardware leaves undefined: prints it to stderr at once, counts it, and keeps it for
// the report.
void commpoolEmulatorReport(const char* rule, const char* details);

// For tests. --------------------------------------------------------------------------------------------------------

// After `skip` calls of the API function `call` succeed, the next `count` calls do nothing and return `result` (a
// CUresult, or an ncclResult_t for nccl* calls).
void commpoolEmulatorInjectFault(const char* call, int skip, int count, int result);
void commpoolEmulatorClearFaults(void);
// Each call of the emulated NCCL begins with this: it counts the call, and returns the injected result, or -1 for none.
int commpoolEmulatorEnterCall(const char* call);

// Returns 1 if the stream is in a capture that nobody announced on any of its streams; else 0.
int commpoolEmulatorIsUnannouncedCapture(CUstream stream);

// Returns how often this process called an API function; "*" counts all functions.
uint64_t commpoolEmulatorCallCount(const char* call);

// Write live resources and broken rules to `buffer`, one line each, truncated at `capacity` and always terminated.
// Return the number of lines.
size_t commpoolEmulatorLeaks(char* buffer, size_t capacity);
size_t commpoolEmulatorReports(char* buffer, size_t capacity);
void commpoolEmulatorClearReports(void);

#ifdef __cplusplus
}
#endif
