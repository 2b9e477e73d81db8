// Move-only owners of driver resources. Each is made by one driver call and given back by one: a factory either returns
// the owner or the Status of the call that failed, with nothing left behind.
//
// Destructors ignore errors of a driver that is shutting down and log the others; `Release()` gives the error, and the
// handle is empty whatever it says, but for a Mapping's. `Abandon()` empties it without a call, after an error that
// lost the context. A handle is used by one thread at a time; it keeps a pointer to its Driver.
#ifndef COMMPOOL_SRC_DRIVER_HANDLES_H_
#define COMMPOOL_SRC_DRIVER_HANDLES_H_

#include <cuda.h>

#include <cstdint>
#include <utility>

#include "commpool/status.h"
#include "src/driver/loader.h"

namespace commpool::internal {

// Physical memory (cuMemCreate): exists while owned or mapped.
class PhysicalMemory {
 public:
  // `bytes` is a multiple of the granularity for `properties`.
  static Result<PhysicalMemory> Create(const Driver& driver, uint64_t bytes, const CUmemAllocationProp& properties);

  PhysicalMemory() = default;
  PhysicalMemory(PhysicalMemory&& other) noexcept { Swap(other); }
  PhysicalMemory& operator=(PhysicalMemory other) noexcept { return Swap(other), *this; }
  ~PhysicalMemory();

  bool valid() const { return driver_ != nullptr; }
  CUmemGenericAllocationHandle get() const { return handle_; }
  uint64_t bytes() const { return bytes_; }
  Status Release();
  void Abandon() { driver_ = nullptr; }

 private:
  void Swap(PhysicalMemory& other) noexcept;

  const Driver* driver_ = nullptr;
  CUmemGenericAllocationHandle handle_ = 0;
  uint64_t bytes_ = 0;
};

// A reserved range of addresses (cuMemAddressReserve) with nothing mapped of its own.
class AddressRange {
 public:
  static Result<AddressRange> Reserve(const Driver& driver, uint64_t bytes, uint64_t alignment);

  AddressRange() = default;
  AddressRange(AddressRange&& other) noexcept { Swap(other); }
  AddressRange& operator=(AddressRange other) noexcept { return Swap(other), *this; }
  ~AddressRange();

  bool valid() const { return driver_ != nullptr; }
  CUdeviceptr address() const { return address_; }
  uint64_t bytes() const { return bytes_; }
  Status Release();
  void Abandon() { driver_ = nullptr; }

 private:
  void Swap(AddressRange& other) noexcept;

  const Driver* driver_ = nullptr;
  CUdeviceptr address_ = 0;
  uint64_t bytes_ = 0;
};

// Physical memory mapped to addresses (cuMemMap). Access is granted separately. Unmaps the whole mapping.
class Mapping {
 public:
  static Result<Mapping> Map(const Driver& driver, CUdeviceptr address, const PhysicalMemory& memory);

  Mapping() = default;
  Mapping(Mapping&& other) noexcept { Swap(other); }
  Mapping& operator=(Mapping other) noexcept { return Swap(other), *this; }
  ~Mapping();

  bool valid() const { return driver_ != nullptr; }
  CUdeviceptr address() const { return address_; }
  uint64_t bytes() const { return bytes_; }
  // Reading and writing for a location, or neither. REQUIRES: valid().
  Status SetAccess(CUmemLocation location, CUmemAccess_flags flags);
  // Where it fails the memory is still there: neither it nor the addresses may serve anybody else.
  Status Release();
  void Abandon() { driver_ = nullptr; }

 private:
  void Swap(Mapping& other) noexcept;

  const Driver* driver_ = nullptr;
  CUdeviceptr address_ = 0;
  uint64_t bytes_ = 0;
};

// An event without timing (cuEventCreate): the cheapest order between streams. Made in the current context.
class Event {
 public:
  static Result<Event> Create(const Driver& driver);

  Event() = default;
  Event(Event&& other) noexcept { Swap(other); }
  Event& operator=(Event other) noexcept { return Swap(other), *this; }
  ~Event();

  bool valid() const { return driver_ != nullptr; }
  CUevent get() const { return event_; }
  Status Release();
  void Abandon() { driver_ = nullptr; }

 private:
  void Swap(Event& other) noexcept;

  const Driver* driver_ = nullptr;
  CUevent event_ = nullptr;
};

// A device's primary context, retained: what makes our memory usable by the runtime API, PyTorch and NCCL.
class PrimaryContext {
 public:
  static Result<PrimaryContext> Retain(const Driver& driver, int device);

  PrimaryContext() = default;
  PrimaryContext(PrimaryContext&& other) noexcept { Swap(other); }
  PrimaryContext& operator=(PrimaryContext other) noexcept { return Swap(other), *this; }
  ~PrimaryContext();

  bool valid() const { return driver_ != nullptr; }
  CUcontext get() const { return context_; }
  int device() const { return device_; }
  Status Release();
  void Abandon() { driver_ = nullptr; }

 private:
  void Swap(PrimaryContext& other) noexcept;

  const Driver* driver_ = nullptr;
  CUcontext context_ = nullptr;
  int device_ = -1;
};

// Makes a context current for a scope and puts the caller's back: no call of ours changes the thread's device.
class [[nodiscard]] ContextGuard {
 public:
  ContextGuard(const Driver& driver, const PrimaryContext& context) : ContextGuard(driver, context.get()) {}
  ContextGuard(const Driver& driver, CUcontext context);
  // Keeps whatever is current, for calls (NCCL's) that may forget to put it back.
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
