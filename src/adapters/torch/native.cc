#include "src/adapters/torch/native.h"

#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <exception>
#include <mutex>

#include "src/adapters/torch/commpool_calls.h"
#include "src/adapters/torch/routings.h"

namespace commpool::torch_adapter {
namespace {

uint64_t NativeReserved(int device) {
  return static_cast<uint64_t>(
      Native()->getDeviceStats(static_cast<c10::DeviceIndex>(device)).reserved_bytes[0].current);
}

// C calls this function, so it may throw nothing.
uint64_t CachedBytes(int device, void* /*context*/) try {
  const auto stats = Native()->getDeviceStats(static_cast<c10::DeviceIndex>(device));
  return static_cast<uint64_t>(stats.reserved_bytes[0].current - stats.allocated_bytes[0].current);
} catch (const std::exception&) {
  return 0;
}

uint64_t ReleaseCached(int device, uint64_t /*bytes*/, void* /*context*/) try {
  // PyTorch may be capturing a graph. Then its cache can give nothing back, and the question would break the capture.
  if (!TorchRoutings().None()) return 0;
  const uint64_t before = NativeReserved(device);
  Native()->emptyCache();
  const uint64_t after = NativeReserved(device);
  return before > after ? before - after : 0;
} catch (const std::exception&) {
  return 0;
}

}  // namespace

DeviceMemory MemoryOf(int device) try {
  const c10::cuda::CUDAGuard on_device(static_cast<c10::DeviceIndex>(device));
  size_t free = 0;
  size_t total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? DeviceMemory{free, total} : DeviceMemory{};
} catch (const std::exception&) {
  return {};
}

void OfferNativeCache() {
  static std::once_flag once;
  std::call_once(once, [] {
    commpool_holder_options options = {};
    options.struct_bytes = sizeof(options);
    options.name = "PyTorch's cache";
    options.cached_bytes = &CachedBytes;
    options.release = &ReleaseCached;
    commpool_holder holder = 0;
    Commpool().add_holder(&options, &holder);
  });
}

}  // namespace commpool::torch_adapter
