#include "src/adapters/torch/allocation.h"

#include <c10/core/Allocator.h>
#include <c10/core/impl/GPUTrace.h>

#include "src/adapters/torch/captures.h"
#include "src/adapters/torch/commpool_calls.h"
#include "src/adapters/torch/failures.h"
#include "src/adapters/torch/history.h"
#include "src/adapters/torch/known_pools.h"
#include "src/adapters/torch/routings.h"
#include "src/adapters/torch/scopes.h"

namespace commpool::torch_adapter {
namespace {

// True while the library works for this thread. What a user's backing allocates with PyTorch then belongs to PyTorch.
// The look-up of a thread-local place is slow, so each allocation does it once.
bool& InsideLibrary() {
  static thread_local bool inside = false;
  return inside;
}

// Says whether somebody observes each allocation: PyTorch's memory history, its profiler or its sanitizer.
inline bool IsObserved() {
  return C10_UNLIKELY(History::Wanted() || c10::impl::GPUTrace::get_trace() != nullptr ||
                      c10::memoryProfilingEnabled());
}

enum class Event { kAllocated, kFreed };

[[gnu::noinline, gnu::cold]] void Tell(Event event, void* pointer) {
  const bool freed = event == Event::kFreed;
  const bool profiled = c10::memoryProfilingEnabled();
  const std::optional<commpool_block> block = profiled || History::Wanted() ? OurBlock(pointer) : std::nullopt;
  if (block && freed) TorchHistory().Freed(*block);
  if (block && !freed && History::Wanted()) TorchHistory().Allocated(*block);
  commpool_statistics held;
  if (block && profiled && ReadStatistics(block->pool, &held)) {
    const auto bytes = static_cast<int64_t>(block->bytes);
    c10::reportMemoryUsageToProfiler(
        pointer, freed ? -bytes : bytes, held.allocated_bytes.current - (freed ? block->bytes : 0),
        held.reserved_bytes.current, c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(block->device)));
  }
  const c10::impl::PyInterpreter* trace = c10::impl::GPUTrace::get_trace();
  if (trace == nullptr) return;
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (freed) return (*trace)->trace_gpu_memory_deallocation(c10::kCUDA, address);
  (*trace)->trace_gpu_memory_allocation(c10::kCUDA, address);
}

void ReportAllocated(commpool_pool pool, uint64_t bytes, void* pointer) {
  if (bytes > kSmallRequest) Pools().Change(pool, [bytes](KnownPool& known) { known.large.Made(bytes); });
  if (IsObserved()) Tell(Event::kAllocated, pointer);
}

// Allocates from one pool; null and the status if that fails. If the stream is captured, it announces the capture
// first.
[[gnu::always_inline]] inline void* AllocateFromPool(commpool_pool pool, const Request& request, bool& inside_library,
                                                     commpool_status* status) {
  void* pointer = nullptr;
  *status = TorchCaptures().Announce(pool, request.stream);
  if (*status == COMMPOOL_OK) {
    inside_library = true;
    *status = Commpool().pool_allocate(pool, request.bytes, request.stream, &pointer);  // throws nothing
    inside_library = false;
  }
  TellWatcher(pool, request.bytes);
  if (*status == COMMPOOL_OK) ReportAllocated(pool, request.bytes, pointer);
  return pointer;
}

// Allocates from the pool that caught the request. If the pool fails, the program gets the error.
void* AllocateOrThrow(commpool_pool pool, const Request& request, bool& inside_library) {
  commpool_status status = COMMPOOL_OK;
  void* pointer = AllocateFromPool(pool, request, inside_library, &status);
  if (status != COMMPOOL_OK) ThrowFailure(status, pool, request);
  return pointer;
}

// Asks this thread's scopes. Returns a block, or null and whether an inner routing takes the request.
void* AllocateInScopes(const Request& request, const Routing& routing, bool& inside_library) {
  internal::WayOut way;
  for (const OpenScope* scope = InnermostScope(); scope != nullptr; scope = scope->outer) {
    if (!scope->Catches(request.device, request.bytes) || way.PassesBy(scope->symmetric)) continue;
    // PyTorch's own pool, if the program opened it inside the scope, serves the request; but not the pool of a graph's
    // capture: in a scope the scope's pool serves graphs too.
    if (routing.number > scope->number && (routing.pool != 0 || CaptureOf(request.stream) == 0)) return nullptr;
    const ScopePlan& plan = scope->plan;
    commpool_status status = COMMPOOL_OK;
    void* pointer = AllocateFromPool(plan.pool, request, inside_library, &status);
    if (status == COMMPOOL_OK) return pointer;
    if (!way.HandsOn(plan.exhaustion, scope->symmetric, status)) ThrowFailure(status, plan.pool, request);
    Pools().Change(plan.pool, [](KnownPool& known) { ++known.handed_on; });
  }
  return nullptr;
}

// Asks the scopes that the program opened through the C ABI, for this thread, a stream or the process.
void* AllocateInPlainScopes(const Request& request) {
  void* pointer = nullptr;
  const commpool_status status = Commpool().allocate_in_scope(request.device, request.bytes, request.stream, &pointer);
  if (status == COMMPOOL_NOT_CAUGHT) return nullptr;
  if (status != COMMPOOL_OK) ThrowFailure(status, 0, request);
  const std::optional<commpool_block> block = OurBlock(pointer);
  if (block) Pools().Add(block->pool, block->device, PoolKind::kUnknown);
  ReportAllocated(block ? block->pool : 0, request.bytes, pointer);
  return pointer;
}

}  // namespace

void* AllocateCaught(const Request& request) {
  bool& inside_library = InsideLibrary();
  if (inside_library) return nullptr;
  const Routing routing = TorchRoutings().Innermost(request.device, request.stream);
  if (void* pointer = AllocateInScopes(request, routing, inside_library)) return pointer;
  if (routing.pool != 0) return AllocateOrThrow(routing.pool, request, inside_library);
  if (routing.number != 0) return nullptr;
  if (void* pointer = AllocateInPlainScopes(request)) return pointer;
  const commpool_pool whole = Pools().Default(request.device);
  return whole == 0 ? nullptr : AllocateOrThrow(whole, request, inside_library);
}

void ReleaseLargeBlock(void* pointer) {
  if (const std::optional<commpool_block> block = OurBlock(pointer))
    Pools().Change(block->pool, [&block](KnownPool& known) { known.large.Freed(block->requested_bytes); });
  ReleaseBlock(pointer);
}

void ReleaseBlock(void* pointer) {
  if (pointer == nullptr) return;
  if (IsObserved()) Tell(Event::kFreed, pointer);
  // In a forked child the block belongs to the parent, and the library refuses. Nobody can be told.
  Commpool().free(pointer);
}

std::optional<commpool_block> OurBlock(const void* pointer) {
  commpool_block block;
  if (pointer == nullptr || Commpool().block_of(pointer, &block, sizeof(block)) != COMMPOOL_OK) return std::nullopt;
  return block;
}

}  // namespace commpool::torch_adapter
