// What copies between a device and the host need: pinned memory, and streams of their own.
//
// src/driver/handle.h says what all handles do.
#ifndef COMMPOOL_SRC_DRIVER_HOST_TRANSFER_H_
#define COMMPOOL_SRC_DRIVER_HOST_TRANSFER_H_

#include <cuda.h>

#include <cstdint>

#include "commpool/status.h"
#include "src/driver/diagnosis.h"
#include "src/driver/handle.h"
#include "src/driver/loader.h"

namespace commpool::internal {

struct PinnedMemoryTraits {
  struct Value {
    void* address = nullptr;
    uint64_t bytes = 0;
  };
  static constexpr AfterFailure kAfterFailure = AfterFailure::kEmpty;
  static CUresult Release(const CudaDriver& cuda, const Value& memory);
  static CallSite Site(const Value& memory);
};

// Memory of the host that the system may not move (cuMemAllocHost): copies run at the link's speed, and beside others.
class PinnedMemory : public Handle<PinnedMemoryTraits> {
 public:
  // A context must be current.
  static Result<PinnedMemory> Make(const Driver& driver, uint64_t bytes);

  using Handle::Handle;
  // As copies name it.
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(value().address); }
};

struct CopyStreamTraits {
  using Value = CUstream;
  static constexpr AfterFailure kAfterFailure = AfterFailure::kEmpty;
  static CUresult Release(const CudaDriver& cuda, const Value& stream);
  static CallSite Site(const Value& stream);
};

// A stream that waits for no other (cuStreamCreate). Made in the current context.
class CopyStream : public Handle<CopyStreamTraits> {
 public:
  static Result<CopyStream> Make(const Driver& driver);

  using Handle::Handle;
  // From device memory or pinned memory to the other.
  Status Copy(CUdeviceptr to, CUdeviceptr from, uint64_t bytes);
  Status Await();
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_DRIVER_HOST_TRANSFER_H_
