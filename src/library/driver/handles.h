// Move-only owners of driver resources. One driver call makes each, one releases it. A factory returns the owner, or
// the Status of the failed call; then nothing is left behind.
//
// Handle says what all of them do: Release(), Abandon(), destructors that log. One thread at a time uses a handle. It
// keeps a pointer to its Driver.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "commpool/status.h"
#include "src/library/base/file_descriptor.h"
#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"
#include "src/library/driver/loader.h"

namespace commpool::internal {

// For destructors, which cannot return an error: logs it, unless the driver or the context is ending with the process.
void LogFailedRelease(const Driver& driver, CUresult result, const CallSite& site);

// Owns an object that one driver call made, and releases it by another driver call.
//
// A class that derives from it, the owner, adds no members. It adds a factory, names for parts of the value, and how to
// release it:
//
//   class Event : public Handle<Event, CUevent> {  // errors name the value's `device` and `bytes`, where it has them
//    public:
//     static constexpr CallSite kRelease{.call = "cuEventDestroy"};
//     static CUresult ReleaseValue(const CudaDriver& cuda, CUevent event) { return cuda.cuEventDestroy(event); }
//     static constexpr bool kKeptAfterFailure = true;  // a release that failed may be tried again; else it ends all
//   };
template <typename Owner, typename Value>
class Handle {
 public:
  Handle() = default;
  // Owns an object that a call has just made.
  Handle(const Driver& driver, Value value) : driver_(&driver), value_(value) {}
  Handle(Handle&& other) noexcept
      : driver_(std::exchange(other.driver_, nullptr)), value_(std::exchange(other.value_, Value{})) {}
  // Releases at once what this handle owned.
  Handle& operator=(Handle&& other) noexcept {
    Handle taken(std::move(other));
    std::swap(driver_, taken.driver_);
    std::swap(value_, taken.value_);
    return *this;
  }
  ~Handle() {
    if (valid()) LogFailedRelease(*driver_, Owner::ReleaseValue(driver_->cuda, value_), Site());
  }

  bool valid() const { return driver_ != nullptr; }
  // REQUIRES for all of them: valid().
  const Driver& driver() const { return *driver_; }
  const Value& value() const { return value_; }
  Value get() const { return value_; }
  uint64_t bytes() const { return value_.bytes; }  // of a Sized value

  // Releases the object and returns the error, if any; OK where the handle is empty.
  Status Release() {
    if (!valid()) return Status();
    Status status = CheckCuda(*driver_, Owner::ReleaseValue(driver_->cuda, value_), Site());
    if (status.ok() || !requires { Owner::kKeptAfterFailure; }) driver_ = nullptr;
    return status;
  }

  // Empties the handle without a driver call: after an error that lost the context, or where others own the object.
  void Abandon() { driver_ = nullptr; }

 protected:
  // The owner of what a call has just made, or the failure of the call.
  static Result<Owner> Made(const Driver& driver, CUresult result, const Value& value, const CallSite& site) {
    COMMPOOL_TRY(CheckCuda(driver, result, site));
    return Owner(driver, value);
  }

 private:
  CallSite Site() const {
    CallSite site = Owner::kRelease;
    if constexpr (requires { value_.device; }) site.device = value_.device;
    if constexpr (requires { value_.bytes; }) site.bytes = value_.bytes;
    return site;
  }

  const Driver* driver_ = nullptr;
  Value value_{};
};

// A value of which errors name the bytes.
template <typename Object>
struct Sized {
  Object object = {};
  uint64_t bytes = 0;
};

// Physical memory (cuMemCreate). It exists while an object owns it or addresses map it.
class PhysicalMemory : public Handle<PhysicalMemory, Sized<CUmemGenericAllocationHandle>> {
 public:
  static constexpr CallSite kRelease{.call = "cuMemRelease"};
  static CUresult ReleaseValue(const CudaDriver& cuda, const Sized<CUmemGenericAllocationHandle>& memory) {
    return cuda.cuMemRelease(memory.object);
  }

  // `bytes` is a multiple of the granularity for `properties`.
  static Result<PhysicalMemory> Create(const Driver& driver, uint64_t bytes, const CUmemAllocationProp& properties);
  // One more owner of the memory that is mapped at the address; empty for memory without a handle, such as
  // cudaMalloc's.
  static PhysicalMemory At(const Driver& driver, CUdeviceptr address, uint64_t bytes);

  using Handle::Handle;
  CUmemGenericAllocationHandle get() const { return value().object; }
  // A descriptor by which processes import the memory. The memory exists while it is open.
  Result<FileDescriptor> Export() const;
  // The memory behind a descriptor that another process exported. The descriptor is not needed any more.
  static Result<PhysicalMemory> Import(const Driver& driver, const FileDescriptor& descriptor, uint64_t bytes);
  // The same by bytes, which keep no memory: nothing where it was not made with a fabric handle.
  std::optional<CUmemFabricHandle> FabricHandle() const;
  static Result<PhysicalMemory> Import(const Driver& driver, CUmemFabricHandle handle, uint64_t bytes);
};

// A reserved range of addresses (cuMemAddressReserve). It maps nothing by itself.
class AddressRange : public Handle<AddressRange, Sized<CUdeviceptr>> {
 public:
  static constexpr CallSite kRelease{.call = "cuMemAddressFree"};
  static CUresult ReleaseValue(const CudaDriver& cuda, const Sized<CUdeviceptr>& range) {
    return cuda.cuMemAddressFree(range.object, range.bytes);
  }

  // At `wanted` where that is free; 0: anywhere.
  static Result<AddressRange> Reserve(const Driver& driver, uint64_t bytes, uint64_t alignment, CUdeviceptr wanted = 0);

  using Handle::Handle;
  CUdeviceptr address() const { return value().object; }
};

// Physical memory mapped to addresses (cuMemMap), without access. Unmaps the whole mapping.
class Mapping : public Handle<Mapping, Sized<CUdeviceptr>> {
 public:
  static constexpr CallSite kRelease{.call = "cuMemUnmap"};
  static CUresult ReleaseValue(const CudaDriver& cuda, const Sized<CUdeviceptr>& range) {
    return cuda.cuMemUnmap(range.object, range.bytes);
  }
  // A failed release leaves the memory mapped: neither memory nor addresses may serve others.
  static constexpr bool kKeptAfterFailure = true;

  static Result<Mapping> Map(const Driver& driver, CUdeviceptr address, const PhysicalMemory& memory);

  using Handle::Handle;
  CUdeviceptr address() const { return value().object; }
  // Lets a location read and write, or neither. REQUIRES: valid().
  Status SetAccess(CUmemLocation location, CUmemAccess_flags flags);
};

// An event without timing (cuEventCreate): the cheapest way to order streams. Made in the current context.
class Event : public Handle<Event, CUevent> {
 public:
  static constexpr CallSite kRelease{.call = "cuEventDestroy"};
  static CUresult ReleaseValue(const CudaDriver& cuda, CUevent event) { return cuda.cuEventDestroy(event); }

  static Result<Event> Create(const Driver& driver);

  // An event that one process records and others may ask about. No stream may wait for another process's: where that
  // process is killed the stream waits for ever (seen on an H100).
  static Result<Event> CreateShared(const Driver& driver);
  Result<CUipcEventHandle> Share() const;
  static Result<Event> Open(const Driver& driver, const CUipcEventHandle& handle);

  using Handle::Handle;
};

// Host memory that the system may not move (cuMemAllocHost): copies reach the link's speed and run beside other work.
class PinnedMemory : public Handle<PinnedMemory, Sized<void*>> {
 public:
  static constexpr CallSite kRelease{.call = "cuMemFreeHost"};
  static CUresult ReleaseValue(const CudaDriver& cuda, const Sized<void*>& memory) {
    return cuda.cuMemFreeHost(memory.object);
  }

  // A context must be current.
  static Result<PinnedMemory> Make(const Driver& driver, uint64_t bytes);

  using Handle::Handle;
  // The address as copies need it.
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(value().object); }
};

// A stream that waits for no other stream (cuStreamCreate), for copies between device memory and pinned memory. Made in
// the current context.
class CopyStream : public Handle<CopyStream, CUstream> {
 public:
  static constexpr CallSite kRelease{.call = "cuStreamDestroy"};
  static CUresult ReleaseValue(const CudaDriver& cuda, CUstream stream) { return cuda.cuStreamDestroy(stream); }

  static Result<CopyStream> Make(const Driver& driver);

  using Handle::Handle;
  Status Copy(CUdeviceptr to, CUdeviceptr from, uint64_t bytes);
  Status Await();
};

struct RetainedContext {
  CUcontext context = nullptr;
  int device = -1;
};

// A device's primary context, retained. The runtime API, PyTorch and NCCL use the same context, so our memory works
// there.
class PrimaryContext : public Handle<PrimaryContext, RetainedContext> {
 public:
  static constexpr CallSite kRelease{.call = "cuDevicePrimaryCtxRelease"};
  static CUresult ReleaseValue(const CudaDriver& cuda, const RetainedContext& retained) {
    return cuda.cuDevicePrimaryCtxRelease(retained.device);
  }

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
