// Multicast objects: their devices, and the memory that is bound to them. They are never mapped: the emulated NCCL only
// asks whether NVLink multicast could use the memory. The class is not thread-safe: the machine's lock guards it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "src/emulator/cuda/address_space.h"
#include "src/emulator/description.h"

namespace commpool::internal::emulator {

// A part of one physical allocation.
struct MemoryPart {
  std::shared_ptr<Physical> physical;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// The rule that a call broke, if the result code does not tell it; else empty.
struct MulticastResult {
  CUresult result = CUDA_SUCCESS;
  std::string broken_rule = {};
  std::string details = {};
};

// Owns the process's multicast objects. The machine holds it; api_multicast.cc calls it.
class Multicasts {
 public:
  using Handle = CUmemGenericAllocationHandle;

  void Create(Handle handle, const CUmulticastObjectProp& properties);
  // A group is of devices that all reach each other.
  CUresult AddDevice(Handle handle, int device, const Description& machine);
  // Offsets and sizes are multiples of `granularity`, the minimum. Bound memory stays alive.
  MulticastResult Bind(Handle handle, uint64_t offset, const MemoryPart& part, uint64_t granularity);
  MulticastResult Unbind(Handle handle, int device, uint64_t offset, uint64_t bytes, uint64_t granularity);

  // Returns false if there is no such object. Its memory is unbound.
  bool Release(Handle handle);
  // one line for each live object
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
