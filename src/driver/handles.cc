#include "src/driver/handles.h"

#include "src/base/log.h"
#include "src/driver/diagnosis.h"

namespace commpool::internal {

namespace {

// A destructor has nobody to tell: it logs, unless the driver is going down with the process anyway.
void LogFailedRelease(const Driver& driver, CUresult result, const CallSite& site) {
  if (result == CUDA_ERROR_DEINITIALIZED || result == CUDA_ERROR_CONTEXT_IS_DESTROYED) return;
  Status status = CheckCuda(driver, result, site);
  if (!status.ok()) Log(LogLevel::kWarning, status.message());
}

// Where memory at a location is said to be in messages.
CallSite SiteAt(const char* call, const CUmemLocation& location, uint64_t bytes) {
  CallSite site{.call = call, .bytes = bytes};
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) site.device = location.id;
  if (location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) site.numa_node = location.id;
  return site;
}

}  // namespace

void PhysicalMemory::Swap(PhysicalMemory& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(handle_, other.handle_);
  std::swap(bytes_, other.bytes_);
}

Result<PhysicalMemory> PhysicalMemory::Create(const Driver& driver, uint64_t bytes,
                                              const CUmemAllocationProp& properties) {
  PhysicalMemory memory;
  const CUresult result = driver.cuda.cuMemCreate(&memory.handle_, bytes, &properties, 0);
  Status status = CheckCuda(driver, result, SiteAt("cuMemCreate", properties.location, bytes));
  if (!status.ok()) return status;
  memory.driver_ = &driver;
  memory.bytes_ = bytes;
  return memory;
}

Status PhysicalMemory::Release() {
  if (!valid()) return Status();
  const Driver& driver = *std::exchange(driver_, nullptr);
  return CheckCuda(driver, driver.cuda.cuMemRelease(handle_), {.call = "cuMemRelease", .bytes = bytes_});
}

PhysicalMemory::~PhysicalMemory() {
  if (!valid()) return;
  const CUresult result = driver_->cuda.cuMemRelease(handle_);
  LogFailedRelease(*driver_, result, {.call = "cuMemRelease", .bytes = bytes_});
}

void AddressRange::Swap(AddressRange& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
}

Result<AddressRange> AddressRange::Reserve(const Driver& driver, uint64_t bytes, uint64_t alignment) {
  AddressRange range;
  const CUresult result = driver.cuda.cuMemAddressReserve(&range.address_, bytes, alignment, 0, 0);
  Status status = CheckCuda(driver, result, {.call = "cuMemAddressReserve", .bytes = bytes});
  if (!status.ok()) return status;
  range.driver_ = &driver;
  range.bytes_ = bytes;
  return range;
}

Status AddressRange::Release() {
  if (!valid()) return Status();
  const Driver& driver = *std::exchange(driver_, nullptr);
  return CheckCuda(driver, driver.cuda.cuMemAddressFree(address_, bytes_),
                   {.call = "cuMemAddressFree", .bytes = bytes_});
}

AddressRange::~AddressRange() {
  if (!valid()) return;
  const CUresult result = driver_->cuda.cuMemAddressFree(address_, bytes_);
  LogFailedRelease(*driver_, result, {.call = "cuMemAddressFree", .bytes = bytes_});
}

void Mapping::Swap(Mapping& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
}

Result<Mapping> Mapping::Map(const Driver& driver, CUdeviceptr address, const PhysicalMemory& memory) {
  Mapping mapping;
  // Offset 0: cuMemMap takes no other.
  const CUresult result = driver.cuda.cuMemMap(address, memory.bytes(), 0, memory.get(), 0);
  Status status = CheckCuda(driver, result, {.call = "cuMemMap", .bytes = memory.bytes()});
  if (!status.ok()) return status;
  mapping.driver_ = &driver;
  mapping.address_ = address;
  mapping.bytes_ = memory.bytes();
  return mapping;
}

Status Mapping::SetAccess(CUmemLocation location, CUmemAccess_flags flags) {
  const CUmemAccessDesc access{.location = location, .flags = flags};
  return CheckCuda(*driver_, driver_->cuda.cuMemSetAccess(address_, bytes_, &access, 1),
                   SiteAt("cuMemSetAccess", location, bytes_));
}

Status Mapping::Release() {
  if (!valid()) return Status();
  Status status =
      CheckCuda(*driver_, driver_->cuda.cuMemUnmap(address_, bytes_), {.call = "cuMemUnmap", .bytes = bytes_});
  if (status.ok()) driver_ = nullptr;
  return status;
}

Mapping::~Mapping() {
  if (!valid()) return;
  const CUresult result = driver_->cuda.cuMemUnmap(address_, bytes_);
  LogFailedRelease(*driver_, result, {.call = "cuMemUnmap", .bytes = bytes_});
}

void Event::Swap(Event& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(event_, other.event_);
}

Result<Event> Event::Create(const Driver& driver) {
  Event event;
  Status status =
      CheckCuda(driver, driver.cuda.cuEventCreate(&event.event_, CU_EVENT_DISABLE_TIMING), {.call = "cuEventCreate"});
  if (!status.ok()) return status;
  event.driver_ = &driver;
  return event;
}

Status Event::Release() {
  if (!valid()) return Status();
  const Driver& driver = *std::exchange(driver_, nullptr);
  return CheckCuda(driver, driver.cuda.cuEventDestroy(event_), {.call = "cuEventDestroy"});
}

Event::~Event() {
  if (!valid()) return;
  const CUresult result = driver_->cuda.cuEventDestroy(event_);
  LogFailedRelease(*driver_, result, {.call = "cuEventDestroy"});
}

void PrimaryContext::Swap(PrimaryContext& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(context_, other.context_);
  std::swap(device_, other.device_);
}

Result<PrimaryContext> PrimaryContext::Retain(const Driver& driver, int device) {
  PrimaryContext context;
  Status status = CheckCuda(driver, driver.cuda.cuDevicePrimaryCtxRetain(&context.context_, device),
                            {.call = "cuDevicePrimaryCtxRetain", .device = device});
  if (!status.ok()) return status;
  context.driver_ = &driver;
  context.device_ = device;
  return context;
}

Status PrimaryContext::Release() {
  if (!valid()) return Status();
  const Driver& driver = *std::exchange(driver_, nullptr);
  return CheckCuda(driver, driver.cuda.cuDevicePrimaryCtxRelease(device_),
                   {.call = "cuDevicePrimaryCtxRelease", .device = device_});
}

PrimaryContext::~PrimaryContext() {
  if (!valid()) return;
  const CUresult result = driver_->cuda.cuDevicePrimaryCtxRelease(device_);
  LogFailedRelease(*driver_, result, {.call = "cuDevicePrimaryCtxRelease", .device = device_});
}

ContextGuard::ContextGuard(const Driver& driver, CUcontext context) : ContextGuard(driver) {
  if (context != previous_) driver_.cuda.cuCtxSetCurrent(context);
}

ContextGuard::ContextGuard(const Driver& driver) : driver_(driver) { driver_.cuda.cuCtxGetCurrent(&previous_); }

ContextGuard::~ContextGuard() {
  CUcontext current = nullptr;
  driver_.cuda.cuCtxGetCurrent(&current);
  if (current != previous_) driver_.cuda.cuCtxSetCurrent(previous_);
}

}  // namespace commpool::internal
