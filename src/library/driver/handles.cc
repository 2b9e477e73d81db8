#include "src/library/driver/handles.h"

#include "src/library/base/log.h"

namespace commpool::internal {

namespace {

// The place of memory, for messages.
CallSite SiteAt(const char* call, const CUmemLocation& location, uint64_t bytes) {
  CallSite site{.call = call, .bytes = bytes};
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) site.device = location.id;
  if (location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) site.numa_node = location.id;
  return site;
}

}  // namespace

void LogFailedRelease(const Driver& driver, CUresult result, const CallSite& site) {
  if (result == CUDA_ERROR_DEINITIALIZED || result == CUDA_ERROR_CONTEXT_IS_DESTROYED) return;
  Status status = CheckCuda(driver, result, site);
  if (!status.ok()) Log(LogLevel::kWarning, status.message());
}

Result<PhysicalMemory> PhysicalMemory::Create(const Driver& driver, uint64_t bytes,
                                              const CUmemAllocationProp& properties) {
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result = driver.cuda.cuMemCreate(&handle, bytes, &properties, 0);
  return Made(driver, result, {handle, bytes}, SiteAt("cuMemCreate", properties.location, bytes));
}

PhysicalMemory PhysicalMemory::At(const Driver& driver, CUdeviceptr address, uint64_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result = driver.cuda.cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address));
  return result == CUDA_SUCCESS ? PhysicalMemory(driver, {handle, bytes}) : PhysicalMemory();
}

Result<FileDescriptor> PhysicalMemory::Export() const {
  int descriptor = -1;
  const CUresult result =
      driver().cuda.cuMemExportToShareableHandle(&descriptor, get(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  COMMPOOL_TRY(CheckCuda(driver(), result,
                         {.call = "cuMemExportToShareableHandle",
                          .bytes = bytes(),
                          .likely_cause = "the memory was not made to be shared by a file descriptor"}));
  return FileDescriptor(descriptor);
}

Result<PhysicalMemory> PhysicalMemory::Import(const Driver& driver, const FileDescriptor& descriptor, uint64_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  void* const number = reinterpret_cast<void*>(static_cast<intptr_t>(descriptor.get()));
  const CUresult result =
      driver.cuda.cuMemImportFromShareableHandle(&handle, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  return Made(driver, result, {handle, bytes}, {.call = "cuMemImportFromShareableHandle", .bytes = bytes});
}

std::optional<CUmemFabricHandle> PhysicalMemory::FabricHandle() const {
  CUmemAllocationProp properties = {};
  CUmemFabricHandle handle = {};
  if (driver().cuda.cuMemGetAllocationPropertiesFromHandle(&properties, get()) != CUDA_SUCCESS) return std::nullopt;
  if ((properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) == 0) return std::nullopt;
  const CUresult result = driver().cuda.cuMemExportToShareableHandle(&handle, get(), CU_MEM_HANDLE_TYPE_FABRIC, 0);
  return result == CUDA_SUCCESS ? std::make_optional(handle) : std::nullopt;
}

Result<PhysicalMemory> PhysicalMemory::Import(const Driver& driver, CUmemFabricHandle fabric, uint64_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result = driver.cuda.cuMemImportFromShareableHandle(&handle, &fabric, CU_MEM_HANDLE_TYPE_FABRIC);
  return Made(driver, result, {handle, bytes}, {.call = "cuMemImportFromShareableHandle", .bytes = bytes});
}

Result<AddressRange> AddressRange::Reserve(const Driver& driver, uint64_t bytes, uint64_t alignment,
                                           CUdeviceptr wanted) {
  CUdeviceptr address = 0;
  const CUresult result = driver.cuda.cuMemAddressReserve(&address, bytes, alignment, wanted, 0);
  return Made(driver, result, {address, bytes}, {.call = "cuMemAddressReserve", .bytes = bytes});
}

Result<Mapping> Mapping::Map(const Driver& driver, CUdeviceptr address, const PhysicalMemory& memory) {
  // The offset is 0: cuMemMap takes no other.
  const CUresult result = driver.cuda.cuMemMap(address, memory.bytes(), 0, memory.get(), 0);
  return Made(driver, result, {address, memory.bytes()}, {.call = "cuMemMap", .bytes = memory.bytes()});
}

Status Mapping::SetAccess(CUmemLocation location, CUmemAccess_flags flags) {
  const CUmemAccessDesc access{.location = location, .flags = flags};
  return CheckCuda(driver(), driver().cuda.cuMemSetAccess(address(), bytes(), &access, 1),
                   SiteAt("cuMemSetAccess", location, bytes()));
}

Result<Event> Event::Create(const Driver& driver) {
  CUevent event = nullptr;
  const CUresult result = driver.cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  return Made(driver, result, event, {.call = "cuEventCreate"});
}

Result<Event> Event::CreateShared(const Driver& driver) {
  CUevent event = nullptr;
  const CUresult result = driver.cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  return Made(driver, result, event, {.call = "cuEventCreate", .purpose = "an event that other processes ask about"});
}

Result<CUipcEventHandle> Event::Share() const {
  CUipcEventHandle handle = {};
  COMMPOOL_TRY(CheckCuda(driver(), driver().cuda.cuIpcGetEventHandle(&handle, get()), {.call = "cuIpcGetEventHandle"}));
  return handle;
}

Result<Event> Event::Open(const Driver& driver, const CUipcEventHandle& handle) {
  CUevent event = nullptr;
  const CUresult result = driver.cuda.cuIpcOpenEventHandle(&event, handle);
  return Made(
      driver, result, event,
      {.call = "cuIpcOpenEventHandle", .likely_cause = "the other process has ended, or its device is not seen"});
}

Result<PinnedMemory> PinnedMemory::Make(const Driver& driver, uint64_t bytes) {
  void* address = nullptr;
  const CUresult result = driver.cuda.cuMemAllocHost(&address, bytes);
  return Made(driver, result, {address, bytes},
              {.call = "cuMemAllocHost",
               .bytes = bytes,
               .memory = Memory::kHost,
               .likely_cause = "the host has not so much to pin"});
}

Result<CopyStream> CopyStream::Make(const Driver& driver) {
  CUstream stream = nullptr;
  const CUresult result = driver.cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  return Made(driver, result, stream, {.call = "cuStreamCreate"});
}

Status CopyStream::Copy(CUdeviceptr to, CUdeviceptr from, uint64_t bytes) {
  return CheckCuda(driver(), driver().cuda.cuMemcpyAsync(to, from, bytes, value()),
                   {.call = "cuMemcpyAsync", .bytes = bytes});
}

Status CopyStream::Await() {
  return CheckCuda(driver(), driver().cuda.cuStreamSynchronize(value()), {.call = "cuStreamSynchronize"});
}

Result<PrimaryContext> PrimaryContext::Retain(const Driver& driver, int device) {
  CUcontext context = nullptr;
  const CUresult result = driver.cuda.cuDevicePrimaryCtxRetain(&context, device);
  return Made(driver, result, {context, device}, {.call = "cuDevicePrimaryCtxRetain", .device = device});
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
