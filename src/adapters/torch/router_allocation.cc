// The router's part that makes, frees, shares and copies memory.
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <new>

#include "src/adapters/torch/commpool_calls.h"
#include "src/adapters/torch/router.h"

namespace commpool::torch_adapter {
namespace {

// PyTorch never destroys its own streams, so they are promised to last. A stream that the program made may end before
// its last use here: for such an external stream the id is the handle. A promise costs a look-up, except for the stream
// that the thread promised last.
cudaStream_t Promised(c10::cuda::CUDAStream stream) {
  thread_local cudaStream_t last = nullptr;
  const cudaStream_t handle = stream.stream();
  if (handle == last) return handle;
  const bool external = stream.id() == static_cast<c10::StreamId>(reinterpret_cast<intptr_t>(handle));
  if (handle != nullptr && !external && Commpool().promise_stream(handle) == COMMPOOL_OK) last = handle;
  return handle;
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
  // A captured stream must not wait for the device.
  const uint64_t released = CaptureOf(request.stream) == 0 ? TrimKnownPools(request.device) : 0;
  if (released != 0) return;
  const std::string table = PoolTable(request.device);
  if (table.empty()) throw;
  TORCH_CHECK_WITH(OutOfMemoryError, false, error.what_without_backtrace(), "\n", table);
}

// Runs PyTorch's `allocate`. If it runs out of memory that our pools could give back, runs it once more.
template <typename Allocate>
C10_ALWAYS_INLINE auto WithOurIdleMemory(const Allocate& allocate) {
  try {
    return allocate();
  } catch (const c10::OutOfMemoryError& error) {
    GiveIdleMemory(error);
  }
  return allocate();
}

}  // namespace

Router& TheRouter() {
  static Router* const router = new (Place()) Router;
  return *router;
}

HotLine& Hot() { return TheRouter().hot(); }

c10::DataPtr Router::AllocateNativeAgain(size_t bytes) { return Native()->allocate(bytes); }

c10::DataPtr Router::AllocateNative(size_t bytes) {
  return WithOurIdleMemory([bytes] { return Native()->allocate(bytes); });
}

// When nothing is open this costs two loads, a branch, and the frame that a second try needs.
[[gnu::aligned(64), gnu::optimize("omit-frame-pointer")]] c10::DataPtr Router::allocate(size_t bytes) {
  if (hot_.AnythingCatches()) return AllocateRouted(bytes);
  TorchAllocator* const native = hot_.native;
  const volatile size_t kept = bytes;  // kept in memory: a register would have to be saved first
  try {
    return native->allocate(bytes);
  } catch (const c10::OutOfMemoryError& error) {
    GiveIdleMemory(error);
  }
  return AllocateNativeAgain(kept);
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
  const commpool_status status =
      Commpool().record_stream(ours ? pointer.get_context() : block->pointer, Promised(stream));
  TORCH_CHECK(status == COMMPOOL_OK, "commpool: ", Commpool().last_error());
}

torch_names::ShareableHandle Router::shareIpcHandle(void* pointer) {
  const std::optional<commpool_block> block = OurBlock(pointer);
  TORCH_CHECK(
      !block,
      "commpool: this tensor lies in a commpool pool, whose memory PyTorch's CUDA IPC cannot share with another "
      "process. Share a copy that is made outside of the scope (tensor.clone()), or keep tensors that are shared "
      "out of the scope.");
  return Native()->shareIpcHandle(pointer);
}

cudaError_t Router::memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                cudaStream_t stream, bool peers) {
  // PyTorch's peers have grants for our pools if these can be granted. If one has none, the driver's own copy works.
  if (to_device != from_device && (OurBlock(to) || OurBlock(from)))
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
  return Native()->memcpyAsync(to, to_device, from, from_device, bytes, stream, peers);
}

}  // namespace commpool::torch_adapter
