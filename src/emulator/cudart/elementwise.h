// PyTorch's elementwise kernels that the emulator runs on the CPU: filling, adding and multiplying contiguous tensors.
//
// A kernel is known by its name, which says the functor and the element type; its arguments follow from that. What is
// not understood in every part is not run.
#ifndef COMMPOOL_SRC_EMULATOR_CUDART_ELEMENTWISE_H_
#define COMMPOOL_SRC_EMULATOR_CUDART_ELEMENTWISE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/emulator/extension.h"

namespace commpool::internal::emulated_cudart {

// One launch: what it touches, and what it does with host pointers to that.
struct KernelWork {
  std::string name;
  std::vector<commpoolEmulatorRange> reads;
  std::vector<commpoolEmulatorRange> writes;
  double duration_us = 0;
  std::function<void(const void* const* reads, void* const* writes)> run;
};

// Null where the emulator does not know what the kernel does. `name` is demangled.
std::unique_ptr<KernelWork> UnderstandElementwise(const std::string& name, void** arguments);

}  // namespace commpool::internal::emulated_cudart

#endif  // COMMPOOL_SRC_EMULATOR_CUDART_ELEMENTWISE_H_
