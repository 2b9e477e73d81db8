// What all parts of the router stand on: which PyTorch it is compiled for, and the allocator that this PyTorch had
// before us, as a rule its native one. The router forwards to it.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <torch/version.h>

#include <atomic>
#include <cstdint>
#include <exception>

// PyTorch's allocator class changes with each minor version, so each binary serves one.
#define COMMPOOL_TORCH_AT_LEAST(minor) \
  (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= (minor)))

#if !COMMPOOL_TORCH_AT_LEAST(9)
#error "commpool's router knows PyTorch from 2.9 on"
#endif

namespace commpool::torch_adapter {

namespace torch_names = c10::cuda::CUDACachingAllocator;

// A static object that exists before all others and is never destroyed, because programs free tensors after static
// objects are gone. The compiler makes it, so an allocation that asks for it checks nothing.
template <typename Object>
union Forever {
  constexpr Forever() : object() {}
  constexpr ~Forever() {}  // never destroys `object`
  Object object;
};

using TorchAllocator = torch_names::CUDAAllocator;

// The part of the router that a forwarded allocation reads. It shares one cache line with the table of the router's
// functions: torch.empty touches more memory than the nearest cache holds, so another line would cost more than the few
// instructions that read it.
struct HotLine {
  TorchAllocator* native = nullptr;
  const std::atomic<uint64_t>* open_scopes = nullptr;  // of the C ABI
  // How much may catch an allocation now: open scopes, routings to our pools, pools that are the whole allocator.
  std::atomic<int64_t> catchers{0};

  // Two loads and a branch.
  [[gnu::always_inline]] bool AnythingCatches() const {
    const auto scopes = static_cast<int64_t>(open_scopes->load(std::memory_order_relaxed));
    return C10_UNLIKELY((catchers.load(std::memory_order_relaxed) | scopes) != 0);
  }
};

// The router's.
HotLine& Hot();

// Null before the router is installed.
inline TorchAllocator* Native() { return Hot().native; }

struct DeviceMemory {
  uint64_t free = 0;
  uint64_t total = 0;
};
// As the driver has it; zeros where it does not answer.
inline DeviceMemory MemoryOf(int device) try {
  const c10::cuda::CUDAGuard on_device(static_cast<c10::DeviceIndex>(device));
  size_t free = 0;
  size_t total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? DeviceMemory{free, total} : DeviceMemory{};
} catch (const std::exception&) {
  return {};
}

}  // namespace commpool::torch_adapter
