// Move-only owners of driver resources. One driver call makes each, one releases it. A factory returns the owner, or
// the Status of the failed call; then nothing is left behind.
//
// handle.h says what all of them do: Release(), Abandon(), destructors that log. One thread at a time uses a handle. It
// keeps a pointer to its Driver.
#ifndef COMMPOOL_SRC_DRIVER_HANDLES_H_
#define COMMPOOL_SRC_DRIVER_HANDLES_H_

#include <cuda.h>

#include <cstdint>

#include "commpool/status.h"
#include "src/driver/diagnosis.h"
#include "src/driver/handle.h"
#include "src/driver/loader.h"

namespace commpool::internal {

// For each owner below, its traits (handle.h) come first.
struct PhysicalMemoryTraits {
  struct Value {
    CUmemGenericAllocationHandle handle = 0;
    uint64_t bytes = 0;
  };
  static constexpr CallSite kRelease{.call = "cuMemRelease"};
  static CUresult Release(const CudaDriver& cuda, const Value& memory) { return cuda.cuMemRelease(memory.handle); }
};

// Physical memory (cuMemCreate). It exists while an object owns it or addresses map it.
class PhysicalMemory : public Handle<PhysicalMemoryTraits> {
 public:
  // `bytes` is a multiple of the granularity for `properties`.
  static Result<PhysicalMemory> Create(const Driver& driver, uint64_t bytes, const CUmemAllocationProp& properties);

  using Handle::Handle;
  CUmemGenericAllocationHandle get() const { return value().handle; }
  uint64_t bytes() const { return value().bytes; }
};

struct AddressRangeTraits {
  struct Value {
    CUdeviceptr address = 0;
    uint64_t bytes = 0;
  };
  static constexpr CallSite kRelease{.call = "cuMemAddressFree"};
  static CUresult Release(const CudaDriver& cuda, const Value& range) {
    return cuda.cuMemAddressFree(range.address, range.bytes);
  }
};

// A reserved range of addresses (cuMemAddressReserve). It maps nothing by itself.
class AddressRange : public Handle<AddressRangeTraits> {
 public:
  static Result<AddressRange> Reserve(const Driver& driver, uint64_t bytes, uint64_t alignment);

  using Handle::Handle;
  CUdeviceptr address() const { return value().address; }
  uint64_t bytes() const { return value().bytes; }
};

struct MappingTraits {
  using Value = AddressRangeTraits::Value;
  static constexpr CallSite kRelease{.call = "cuMemUnmap"};
  static CUresult Release(const CudaDriver& cuda, const Value& range) {
    return cuda.cuMemUnmap(range.address, range.bytes);
  }
  // A failed release leaves the memory mapped: neither memory nor addresses may serve others.
  static constexpr bool kKeptAfterFailure = true;
};

// Physical memory mapped to addresses (cuMemMap), without access. Unmaps the whole mapping.
class Mapping : public Handle<MappingTraits> {
 public:
  static Result<Mapping> Map(const Driver& driver, CUdeviceptr address, const PhysicalMemory& memory);

  using Handle::Handle;
  CUdeviceptr address() const { return value().address; }
  uint64_t bytes() const { return value().bytes; }
  // Lets a location read and write, or neither. REQUIRES: valid().
  Status SetAccess(CUmemLocation location, CUmemAccess_flags flags);
};

struct EventTraits {
  using Value = CUevent;
  static constexpr CallSite kRelease{.call = "cuEventDestroy"};
  static CUresult Release(const CudaDriver& cuda, const Value& event) { return cuda.cuEventDestroy(event); }
};

// An event without timing (cuEventCreate): the cheapest way to order streams. Made in the current context.
class Event : public Handle<EventTraits> {
 public:
  static Result<Event> Create(const Driver& driver);

  using Handle::Handle;
  CUevent get() const { return value(); }
};

struct PinnedMemoryTraits {
  struct Value {
    void* address = nullptr;
    uint64_t bytes = 0;
  };
  static constexpr CallSite kRelease{.call = "cuMemFreeHost"};
  static CUresult Release(const CudaDriver& cuda, const Value& memory) { return cuda.cuMemFreeHost(memory.address); }
};

// Host memory that the system may not move (cuMemAllocHost): copies reach the link's speed and run beside other work.
class PinnedMemory : public Handle<PinnedMemoryTraits> {
 public:
  // A context must be current.
  static Result<PinnedMemory> Make(const Driver& driver, uint64_t bytes);

  using Handle::Handle;
  // The address as copies need it.
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(value().address); }
};

struct CopyStreamTraits {
  using Value = CUstream;
  static constexpr CallSite kRelease{.call = "cuStreamDestroy"};
  static CUresult Release(const CudaDriver& cuda, const Value& stream) { return cuda.cuStreamDestroy(stream); }
};

// A stream that waits for no other stream (cuStreamCreate), for copies between device memory and pinned memory. Made in
// the current context.
class CopyStream : public Handle<CopyStreamTraits> {
 public:
  static Result<CopyStream> Make(const Driver& driver);

  using Handle::Handle;
  Status Copy(CUdeviceptr to, CUdeviceptr from, uint64_t bytes);
  Status Await();
};

struct PrimaryContextTraits {
  struct Value {
    CUcontext context = nullptr;
    int device = -1;
  };
  static constexpr CallSite kRelease{.call = "cuDevicePrimaryCtxRelease"};
  static CUresult Release(const CudaDriver& cuda, const Value& retained) {
    return cuda.cuDevicePrimaryCtxRelease(retained.device);
  }
};

// A device's primary context, retained. The runtime API, PyTorch and NCCL use the same context, so our memory works
// there.
class PrimaryContext : public Handle<PrimaryContextTraits> {
 public:
  static Result<PrimaryContext> Retain(const Driver& driver, int device);

  using Handle::Handle;
  CUcontext get() const { return value().context; }
  int device() const { return value().device; }
};

// While it lives, a context is current. Then it restores the caller's context: no call of ours may change the thread's
// device.
class [[nodiscard]] ContextGuard {
 public:
  ContextGuard(const Driver& driver, const PrimaryContext& context) : ContextGuard(driver, context.get()) {}
  ContextGuard(const Driver& driver, CUcontext context);
  // Restores whatever is current now, after calls (NCCL's) that may change it.
  explicit ContextGuard(const Driver& driver);
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  const Driver& driver_;
  CUcontext previous_ = nullptr;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_DRIVER_HANDLES_H_
