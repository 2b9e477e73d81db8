// Multicast objects: which devices they span and what memory is bound to them. They are never mapped: the emulated NCCL
// only needs to know whether NVLink multicast could use the memory. Not thread-safe: the machine's lock guards it.
#ifndef COMMPOOL_SRC_EMULATOR_CUDA_MULTICAST_H_
#define COMMPOOL_SRC_EMULATOR_CUDA_MULTICAST_H_

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "src/emulator/cuda/address_space.h"

namespace commpool::internal::emulator {

// A part of one physical allocation.
struct MemoryPart {
  std::shared_ptr<Physical> physical;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// A broken rule that the result does not tell; empty where there is none.
struct MulticastResult {
  CUresult result = CUDA_SUCCESS;
  std::string broken_rule = {};
  std::string details = {};
};

class Multicasts {
 public:
  using Handle = CUmemGenericAllocationHandle;

  void Create(Handle handle, const CUmulticastObjectProp& properties);
  CUresult AddDevice(Handle handle, int device);
  // Offsets and sizes are multiples of `granularity`, the minimum. Memory stays alive while it is bound.
  MulticastResult Bind(Handle handle, uint64_t offset, const MemoryPart& part, uint64_t granularity);
  MulticastResult Unbind(Handle handle, int device, uint64_t offset, uint64_t bytes, uint64_t granularity);

  // Whether there was such an object. What is bound to it is let go.
  bool Release(Handle handle);
  // Live objects, a line each.
  std::vector<std::string> Describe() const;

 private:
  struct Bound {
    int device;
    uint64_t offset;
    MemoryPart part;
  };
  struct Object {
    CUmulticastObjectProp properties;
    std::set<int> devices;
    std::vector<Bound> bound;
  };

  std::map<Handle, Object> objects_;
};

}  // namespace commpool::internal::emulator

#endif  // COMMPOOL_SRC_EMULATOR_CUDA_MULTICAST_H_
