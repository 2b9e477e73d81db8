// Memory that one driver call makes, or NCCL's: the limit line for a pool's memory of the same kind. One thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "commpool/pool.h"
#include "src/library/driver/handles.h"
#include "src/library/driver/loader.h"

namespace commpool::cli {

// What a pool makes by itself, and the raw call by hand.
struct MemoryKind {
  Backing backing = Backing::kVmm;
  Location location = Location::kDevice;

  bool on_host() const { return location == Location::kHostNuma || backing == Backing::kPinned; }
};

class RawMemory {
 public:
  // `bytes` is a multiple of 2 MiB. The devices of `peers` may use it too: for cuMemAlloc that is a matter of whole
  // contexts, so there a pool of the same kind must have asked for it before. kNotSupported where the machine refuses
  // the call for that kind. REQUIRES: the driver outlives it.
  static Result<RawMemory> Make(const internal::Driver& driver, MemoryKind kind, int device, uint64_t bytes,
                                const std::vector<int>& peers = {});
  static const char* CallFor(MemoryKind kind);

  CUdeviceptr address() const { return address_; }

 private:
  // Memory with a handle, in the order of its making.
  struct Mapped {
    internal::AddressRange addresses;
    internal::PhysicalMemory memory;
    internal::Mapping mapping;
  };

  Status Create(const internal::Driver& driver, MemoryKind kind, int device, uint64_t bytes,
                const std::vector<int>& peers);

  CUdeviceptr address_ = 0;
  Mapped mapped_;
  std::shared_ptr<void> whole_;  // of the other calls; ends by theirs
};

}  // namespace commpool::cli
