// The allocator that PyTorch had before us, its native one as a rule: the router forwards to it.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_NATIVE_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_NATIVE_H_

#include <cstdint>

#include "src/adapters/torch/hot_line.h"

namespace commpool::torch_adapter {

// Null before the router is installed.
inline TorchAllocator* Native() { return Hot().native; }

struct DeviceMemory {
  uint64_t free = 0;
  uint64_t total = 0;
};
// As the driver has it; zeros where it does not answer.
DeviceMemory MemoryOf(int device);

// PyTorch's cache is asked when a pool of ours runs out: tells the library of it, once.
void OfferNativeCache();

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_NATIVE_H_
