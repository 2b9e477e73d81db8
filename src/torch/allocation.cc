#include "src/torch/allocation.h"

#include <c10/core/Allocator.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <new>

#include "src/torch/router.h"

namespace commpool::torch_adapter {
namespace {

// True while the library works for this thread. What a user's backing allocates with PyTorch then belongs to PyTorch.
// The look-up of a thread-local place is slow, so each allocation does it once.
bool& InsideLibrary() {
  static thread_local bool inside = false;
  return inside;
}

// On a line of its own: forwarded allocations read other lines.
alignas(64) constinit std::atomic<int64_t> live_blocks{0};

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
  live_blocks.fetch_add(1, std::memory_order_relaxed);
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

// Asks the scopes that catch the request, the one that began last first. Returns a block; null where an inner routing
// takes the request, and where none of them serves it.
void* AllocateInScopes(const Request& request, const Routing& routing, bool& inside_library) {
  internal::WayOut way;
  for (auto scope = CatchingScope(request); scope != nullptr; scope = CatchingScope(request, scope->number)) {
    if (way.PassesBy(scope->symmetric)) continue;
    // PyTorch's own pool, if the program opened it inside the scope, serves the request; but not the pool of a graph's
    // capture: in a scope the scope's pool serves graphs too.
    if (routing.number > scope->number && (routing.pool != 0 || CaptureOf(request.stream) == 0)) return nullptr;
    const ScopePlan& plan = scope->plan;
    commpool_status status = COMMPOOL_OK;
    void* pointer = AllocateFromPool(plan.pool, request, inside_library, &status);
    if (status == COMMPOOL_OK) return pointer;
    // Another thread may have ended a scope that all share, and its pool after it: then the request is another one's.
    if (scope->shared_handle != 0 && CatchingScope(request, scope->number + 1) != scope) continue;
    if (!way.HandsOn(plan.exhaustion, scope->symmetric, status)) ThrowFailure(status, plan.pool, request);
    Pools().Change(plan.pool, [](KnownPool& known) { ++known.handed_on; });
  }
  return nullptr;
}

// Asks the scopes that the program opened through the C ABI, for this thread, a stream or the process. The library also
// knows those that all threads share here, and would ask them again.
void* AllocateInPlainScopes(const Request& request) {
  if (ScopesOfAllThreads().Innermost(request) != nullptr) return nullptr;
  void* pointer = nullptr;
  const commpool_status status = Commpool().allocate_in_scope(request.device, request.bytes, request.stream, &pointer);
  if (status == COMMPOOL_NOT_CAUGHT) return nullptr;
  if (status != COMMPOOL_OK) ThrowFailure(status, 0, request);
  const std::optional<commpool_block> block = OurBlock(pointer);
  if (block) Pools().Add(block->pool, block->device, PoolKind::kUnknown);
  ReportAllocated(block ? block->pool : 0, request.bytes, pointer);
  return pointer;
}

Request CurrentRequest(size_t bytes) {
  const c10::DeviceIndex device = c10::cuda::current_device();
  return {device, bytes, c10::cuda::getCurrentCUDAStream(device).stream()};
}

// Returns the memory of the one router.
std::byte* Place() {
  alignas(Router) static std::byte place[sizeof(Router)];
  return place;
}

// Called by a handler of PyTorch's out-of-memory error. Our pools give their idle memory back; it throws if they have
// none.
[[gnu::noinline, gnu::cold]] void GiveIdleMemory(const c10::OutOfMemoryError& error) {
  const Request request = CurrentRequest(0);
  // A trim waits for the device, which would break a capture. PyTorch may capture a graph on another thread.
  const bool captures = !TorchRoutings().None() || CaptureOf(request.stream) != 0;
  const uint64_t released = captures ? 0 : TrimKnownPools(request.device);
  if (released != 0) return;
  const std::string table = PoolTable(request.device);
  if (table.empty()) throw;
  TORCH_CHECK_WITH(OutOfMemoryError, false, error.what_without_backtrace(), "\n", table);
}

// Runs PyTorch's `allocate`, again after each time that our pools gave memory back for it.
template <typename Allocate>
C10_ALWAYS_INLINE auto WithOurIdleMemory(const Allocate& allocate) {
  for (;;) {
    try {
      return allocate();
    } catch (const c10::OutOfMemoryError& error) {
      GiveIdleMemory(error);
    }
  }
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
  if (Commpool().free(pointer) == COMMPOOL_OK) live_blocks.fetch_sub(1, std::memory_order_relaxed);
}

int64_t LiveBlocks() { return live_blocks.load(std::memory_order_relaxed); }

std::optional<commpool_block> OurBlock(const void* pointer) {
  commpool_block block;
  if (pointer == nullptr || Commpool().block_of(pointer, &block, sizeof(block)) != COMMPOOL_OK) return std::nullopt;
  return block;
}

Router& TheRouter() {
  static Router* const router = new (Place()) Router;
  return *router;
}

HotLine& Hot() { return TheRouter().hot(); }

commpool_status RecordStream(void* pointer, c10::cuda::CUDAStream stream) {
  const c10::cuda::CUDAGuard of_stream(stream.device_index());
  return Commpool().record_stream(pointer, Promised(stream));
}

c10::DataPtr Router::AllocateNative(size_t bytes) {
  return WithOurIdleMemory([bytes] { return Native()->allocate(bytes); });
}

// When nothing is open this costs two loads, a branch, and the frame that another try needs.
[[gnu::aligned(64), gnu::optimize("omit-frame-pointer")]] c10::DataPtr Router::allocate(size_t bytes) {
  if (hot_.AnythingCatches()) return AllocateRouted(bytes);
  TorchAllocator* const native = hot_.native;
  const volatile size_t kept = bytes;  // kept in memory: a register would have to be saved first
  try {
    return native->allocate(bytes);
  } catch (const c10::OutOfMemoryError& error) {
    GiveIdleMemory(error);
  }
  return AllocateNative(kept);
}

c10::DataPtr Router::AllocateRouted(size_t bytes) {
  if (bytes == 0 || !Routes()) return AllocateNative(bytes);
  const c10::DeviceIndex device = c10::cuda::current_device();
  const Request request = {device, bytes, Promised(c10::cuda::getCurrentCUDAStream(device))};
  void* pointer = AllocateCaught(request);
  if (pointer == nullptr) return AllocateNative(bytes);
  return {pointer, pointer, DeleterOf(bytes), c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(request.device))};
}

void* Router::raw_alloc(size_t bytes) {
  return raw_alloc_with_stream(bytes, c10::cuda::getCurrentCUDAStream(c10::cuda::current_device()).stream());
}

void* Router::raw_alloc_with_stream(size_t bytes, cudaStream_t stream) {
  if (hot_.AnythingCatches() && bytes != 0 && Routes())
    if (void* pointer = AllocateCaught({c10::cuda::current_device(), bytes, stream})) return pointer;
  return WithOurIdleMemory([bytes, stream] { return Native()->raw_alloc_with_stream(bytes, stream); });
}

void Router::raw_delete(void* pointer) {
  if (const std::optional<commpool_block> block = OurBlock(pointer)) return DeleterOf(block->requested_bytes)(pointer);
  Native()->raw_delete(pointer);
}

void* Router::getBaseAllocation(void* pointer, size_t* bytes) {
  const std::optional<commpool_block> block = OurBlock(pointer);
  if (!block) return Native()->getBaseAllocation(pointer, bytes);
  if (bytes != nullptr) *bytes = block->bytes;
  return block->pointer;
}

void Router::recordStream(const c10::DataPtr& pointer, c10::cuda::CUDAStream stream) {
  // A view of a foreign deleter may hide ours: then the address tells.
  const bool ours = IsOurs(pointer.get_deleter());
  const std::optional<commpool_block> block = ours ? std::nullopt : OurBlock(pointer.get());
  if (!ours && !block) return Native()->recordStream(pointer, stream);
  const commpool_status status = RecordStream(ours ? pointer.get_context() : block->pointer, stream);
  TORCH_CHECK(status == COMMPOOL_OK, "commpool: ", Commpool().last_error());
}

cudaError_t Router::memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                cudaStream_t stream, bool peers) {
  // PyTorch's peers have grants for our pools if these can be granted. If one has none, the driver's own copy works.
  if (to_device != from_device && (OurBlock(to) || OurBlock(from)))
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
  return Native()->memcpyAsync(to, to_device, from, from_device, bytes, stream, peers);
}

}  // namespace commpool::torch_adapter
