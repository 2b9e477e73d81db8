#include "src/driver/handles.h"

namespace commpool::internal {

namespace {

// How a message names the place of memory.
CallSite SiteAt(const char* call, const CUmemLocation& location, uint64_t bytes) {
  CallSite site{.call = call, .bytes = bytes};
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) site.device = location.id;
  if (location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) site.numa_node = location.id;
  return site;
}

}  // namespace

Result<PhysicalMemory> PhysicalMemory::Create(const Driver& driver, uint64_t bytes,
                                              const CUmemAllocationProp& properties) {
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result = driver.cuda.cuMemCreate(&handle, bytes, &properties, 0);
  Status status = CheckCuda(driver, result, SiteAt("cuMemCreate", properties.location, bytes));
  if (!status.ok()) return status;
  return PhysicalMemory(driver, {handle, bytes});
}

CUresult PhysicalMemoryTraits::Release(const CudaDriver& cuda, const Value& memory) {
  return cuda.cuMemRelease(memory.handle);
}

CallSite PhysicalMemoryTraits::Site(const Value& memory) { return {.call = "cuMemRelease", .bytes = memory.bytes}; }

Result<AddressRange> AddressRange::Reserve(const Driver& driver, uint64_t bytes, uint64_t alignment) {
  CUdeviceptr address = 0;
  const CUresult result = driver.cuda.cuMemAddressReserve(&address, bytes, alignment, 0, 0);
  Status status = CheckCuda(driver, result, {.call = "cuMemAddressReserve", .bytes = bytes});
  if (!status.ok()) return status;
  return AddressRange(driver, {address, bytes});
}

CUresult AddressRangeTraits::Release(const CudaDriver& cuda, const Value& range) {
  return cuda.cuMemAddressFree(range.address, range.bytes);
}

CallSite AddressRangeTraits::Site(const Value& range) { return {.call = "cuMemAddressFree", .bytes = range.bytes}; }

Result<Mapping> Mapping::Map(const Driver& driver, CUdeviceptr address, const PhysicalMemory& memory) {
  // Offset 0: cuMemMap takes no other.
  const CUresult result = driver.cuda.cuMemMap(address, memory.bytes(), 0, memory.get(), 0);
  Status status = CheckCuda(driver, result, {.call = "cuMemMap", .bytes = memory.bytes()});
  if (!status.ok()) return status;
  return Mapping(driver, {address, memory.bytes()});
}

Status Mapping::SetAccess(CUmemLocation location, CUmemAccess_flags flags) {
  const CUmemAccessDesc access{.location = location, .flags = flags};
  return CheckCuda(driver(), driver().cuda.cuMemSetAccess(address(), bytes(), &access, 1),
                   SiteAt("cuMemSetAccess", location, bytes()));
}

CUresult MappingTraits::Release(const CudaDriver& cuda, const Value& range) {
  return cuda.cuMemUnmap(range.address, range.bytes);
}

CallSite MappingTraits::Site(const Value& range) { return {.call = "cuMemUnmap", .bytes = range.bytes}; }

Result<Event> Event::Create(const Driver& driver) {
  CUevent event = nullptr;
  Status status =
      CheckCuda(driver, driver.cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), {.call = "cuEventCreate"});
  if (!status.ok()) return status;
  return Event(driver, event);
}

CUresult EventTraits::Release(const CudaDriver& cuda, const Value& event) { return cuda.cuEventDestroy(event); }

CallSite EventTraits::Site(const Value&) { return {.call = "cuEventDestroy"}; }

Result<PrimaryContext> PrimaryContext::Retain(const Driver& driver, int device) {
  CUcontext context = nullptr;
  Status status = CheckCuda(driver, driver.cuda.cuDevicePrimaryCtxRetain(&context, device),
                            {.call = "cuDevicePrimaryCtxRetain", .device = device});
  if (!status.ok()) return status;
  return PrimaryContext(driver, {context, device});
}

CUresult PrimaryContextTraits::Release(const CudaDriver& cuda, const Value& retained) {
  return cuda.cuDevicePrimaryCtxRelease(retained.device);
}

CallSite PrimaryContextTraits::Site(const Value& retained) {
  return {.call = "cuDevicePrimaryCtxRelease", .device = retained.device};
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
