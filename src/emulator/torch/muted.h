// An operation of PyTorch whose CUDA code runs muted, so that it makes outputs and temporaries and launches nothing;
// then its CPU kernel is a launch.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <atomic>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include "src/emulator/runtime_extension.h"
#include "src/emulator/torch/deferred.h"

namespace commpool::internal::emulated_torch {

// The kernel that PyTorch has for a device.
using Original = std::remove_cvref_t<decltype(std::declval<c10::OperatorHandle>().getComputedKernelForDispatchKey(
    c10::DispatchKey::CUDA))>;

// Says whether this thread is inside of a muted operation. There others run as PyTorch has them.
bool IsInsideOfMuted();

// Says whether there is no kernel, or no library of kernels.
bool IsRefusal(const std::exception& error);

// The device of the first tensor there or the named one; else the current device.
c10::Device DeviceOf(const c10::Stack& arguments);

class Muted : public c10::OperatorKernel {
 public:
  // `kernel` may be null: the operation itself, on CPU tensors.
  Muted(Original original, CpuKernel kernel, const c10::OperatorHandle& operation);

  void operator()(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, c10::Stack* stack) const;

 private:
  commpoolEmulatorMuted CallMuted(const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
                                  c10::Stack* stack) const;

  const Original original_;
  const CpuKernel kernel_;
  const bool draws_;
  const bool has_cpu_;
  mutable std::atomic<uint64_t> compiled_ = 0;  // types for which PyTorch compiles a kernel when it first runs
};

}  // namespace commpool::internal::emulated_torch
