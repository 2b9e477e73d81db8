#include "src/torch/host_allocator.h"

#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>

#include <cstdint>
#include <optional>

#include "src/torch/host_scopes.h"
#include "src/torch/router.h"

namespace commpool::torch_adapter {
namespace {

// at::setHostAllocator and at::getHostAllocator. They are found when they are needed: the router links only c10, and
// an exported libtorch_cpu would hide other libraries' names.
constexpr const char* kTorchLibrary = "libtorch_cpu.so";
constexpr const char* kSet = "_ZN2at16setHostAllocatorEN3c1010DeviceTypeEPNS_13HostAllocatorEh";
constexpr const char* kGet = "_ZN2at16getHostAllocatorEN3c1010DeviceTypeE";
using SetFunction = void (*)(c10::DeviceType, at::HostAllocator*, uint8_t);
using GetFunction = at::HostAllocator* (*)(c10::DeviceType);

constexpr uint8_t kHostPriority = 1;  // PyTorch's own has 0

std::string PutInFront() {
  void* const library = dlopen(kTorchLibrary, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return std::string("this process has no ") + kTorchLibrary;
  const auto set = reinterpret_cast<SetFunction>(dlsym(library, kSet));
  const auto get = reinterpret_cast<GetFunction>(dlsym(library, kGet));
  if (set == nullptr || get == nullptr) return "this PyTorch exports no at::setHostAllocator";
  at::HostAllocator* const native = get(c10::kCUDA);
  if (native == nullptr) return "PyTorch has no allocator of pinned memory";
  auto* const ours = new HostAllocator(native);  // never destroyed: programs free tensors at their very end
  set(c10::kCUDA, ours, kHostPriority);
  return get(c10::kCUDA) == ours ? "" : "another allocator of pinned memory lets no other take its place";
}

void ReleaseHostBlock(void* pointer) {
  // In a forked child the block belongs to the parent, and the library refuses. Nobody can be told.
  Commpool().free(pointer);
}

// A graph's replays use what its capture allocated. Only PyTorch's own allocator keeps that for the graph.
bool IsCaptured() { return CaptureOf(c10::cuda::getCurrentCUDAStream().stream()) != 0; }

// Returns a block from the innermost scope that catches the request; null if none does.
void* AllocatePinned(uint64_t bytes) {
  internal::WayOut way;
  for (auto scope = PinnedScopes().Innermost({kNoDevice, bytes}); scope != nullptr;
       scope = PinnedScopes().Innermost({kNoDevice, bytes}, scope->number)) {
    void* pointer = nullptr;
    // PyTorch's pinned tensors are of no stream: it records each copy.
    const commpool_status status = Commpool().pool_allocate(scope->plan.pool, bytes, COMMPOOL_NO_STREAM, &pointer);
    if (status == COMMPOOL_OK) return pointer;
    if (!way.HandsOn(scope->plan.exhaustion, /*symmetric=*/false, status)) ThrowPinnedFailure(status);
  }
  return nullptr;
}

void ForgetGonePools() {
  commpool_statistics held;
  for (const commpool_pool pool : PinnedScopes().KnownPools())
    if (!ReadStatistics(pool, &held)) PinnedScopes().Forget(pool);
}

// A pool that is told of the capture records nothing on its stream, which would break it. Whoever replays the graph
// keeps the block. A pool that is closed or gone takes no announcement.
void AnnounceCapture(commpool_pool pool, cudaStream_t stream) {
  const commpool_status announced = TorchCaptures().Announce(pool, stream);
  const bool ended = announced == COMMPOOL_NOT_FOUND || announced == COMMPOOL_FAILED_PRECONDITION;
  TORCH_CHECK(ended || announced == COMMPOOL_OK, "commpool: ", Commpool().last_error());
}

}  // namespace

std::string InstallHostAllocator() {
  static const std::string reason = PutInFront();
  return reason;
}

void KnowPinned(commpool_pool pool) {
  ForgetGonePools();
  PinnedScopes().Know(pool);
}

c10::DataPtr HostAllocator::allocate(size_t bytes) {
  const bool caught = !PinnedScopes().None() && bytes != 0 && TheRouter().Routes() && !IsCaptured();
  if (void* const pointer = caught ? AllocatePinned(bytes) : nullptr)
    return {pointer, pointer, &ReleaseHostBlock, c10::Device(c10::kCPU)};
  return native_->allocate(bytes);
}

bool HostAllocator::record_event(void* pointer, void* context, c10::Stream stream) {
  commpool_block block;
  const commpool_status found =
      pointer == nullptr ? COMMPOOL_NOT_FOUND : Commpool().block_of(pointer, &block, sizeof(block));
  if (found == COMMPOOL_NOT_FOUND) return native_->record_event(pointer, context, stream);
  const c10::cuda::CUDAStream of_copy(stream);
  const cudaStream_t handle = of_copy.stream();
  if (found == COMMPOOL_OK && RecordStream(block.pointer, of_copy) == COMMPOOL_OK) {
    AnnounceCapture(block.pool, handle);
  } else {
    // The host has no memory, say. The block may be ours, and must not serve again while it is read: so the copy ends
    // here.
    TORCH_CHECK(CaptureOf(handle) == 0, "commpool: ", Commpool().last_error());
    of_copy.synchronize();
  }
  return true;
}

}  // namespace commpool::torch_adapter
