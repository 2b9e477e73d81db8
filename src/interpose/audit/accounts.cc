#include "src/interpose/audit/accounts.h"

#include <string_view>

#include "src/interpose/audit/audit.h"
#include "src/interpose/audit/callers.h"
#include "src/interpose/audit/graph_accounts.h"
#include "src/interpose/audit/real_driver.h"
#include "src/interpose/preload/symbols.h"
#include "src/interpose/room/streams.h"
#include "src/library/base/bytes.h"
#include "src/library/base/python_stack.h"

namespace commpool::audit {

namespace {

constexpr uint64_t kGranule = uint64_t{2} << 20;

// What the driver takes for cuMemAlloc: whole granules; small allocations share one.
uint64_t InGranules(uint64_t bytes) {
  return bytes < kGranule / 2 ? bytes : (bytes + kGranule - 1) / kGranule * kGranule;
}

uint64_t KeyOf(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

std::string StackOf(What what) {
  const bool worth = IsDeviceMemory(what) || what == What::kNcclMemory || what == What::kWindow ||
                     what == What::kRegistration || what == What::kInPools;
  return worth && Audit::Get().settings.python_stacks ? internal::PythonStack(&preload::FindDefinition) : "";
}

void EnterGone(PhysicalId physical, uint64_t nanoseconds) {
  Ledger& ledger = Audit::Get().ledger;
  for (const What what : {What::kPhysical, What::kImport}) {
    if (const std::optional<Holding> holding = ledger.Take(what, physical)) ledger.End(*holding, nanoseconds);
  }
}

// Whether a capture has made a graph's node of a call on this stream.
bool IsCaptured(const Event& event, CUstream stream) {
  const bool per_thread = stream == nullptr && std::string_view(event.call).ends_with("_ptsz");
  return event.done() && RealDriver::Get().IsCapturing(per_thread ? CU_STREAM_PER_THREAD : stream).value_or(false);
}

void EnterInPool(Event& event, CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool, int device) {
  EnterMade(event, What::kInPools, event.done() ? *pointer : 0, bytes, device);
  if (event.done() && pool != nullptr && device != kNoDevice) Audit::Get().memory.NotePool(device, pool);
}

}  // namespace

RowKey RowOf(What what, int device) { return {NameOfCaller(Audit::Get().objects), what, device}; }

void EnterMade(Event& event, What what, uint64_t key, uint64_t bytes, int device) {
  Audit& audit = Audit::Get();
  const bool is_probe = what == What::kPhysical && !event.done() && event.outcome != Outcome::kOutOfMemory;
  const RowKey row = RowOf(is_probe ? What::kProbe : what, device);
  if (event.done()) {
    audit.ledger.Hold(key, {row, bytes, StackOf(what)}, event.nanoseconds);
    if (IsDeviceMemory(what)) audit.CheckLimit(device);
    return;
  }
  audit.ledger.Fail(row, event.nanoseconds);
  if (event.outcome != Outcome::kOutOfMemory) return;
  audit.NoteOutOfMemory(std::string(event.call) + " of " + internal::FormatBytes(bytes) + " by " + row.library +
                        (device == kNoDevice ? "" : " on device " + std::to_string(device)));
}

void TakeEnded(Event& event, What what, uint64_t key) {
  std::optional<Holding> holding = Audit::Get().ledger.Take(what, key);
  if (holding) event.taken.emplace_back(key, std::move(*holding));
}

void EnterEnded(Event& event) {
  Ledger& ledger = Audit::Get().ledger;
  for (auto& [key, holding] : event.taken) {
    if (event.done()) {
      ledger.End(holding, event.nanoseconds);
      Audit::Get().CheckLimit(holding.row.device);
    } else {
      ledger.PutBack(key, std::move(holding));
    }
  }
  event.taken.clear();
}

void MeasureBefore(Event& event, int device) {
  Audit& audit = Audit::Get();
  event.device = device == kNoDevice ? RealDriver::Get().CurrentDevice() : device;
  if (event.device == kNoDevice) return;
  event.free_before = audit.memory.FreeBytes(event.device);
  event.held_before = audit.ledger.DeviceBytes(event.device);
}

std::optional<int64_t> MeasuredBytes(const Event& event) {
  if (!event.free_before) return std::nullopt;
  Audit& audit = Audit::Get();
  const std::optional<int64_t> free = audit.memory.FreeBytes(event.device);
  // What other threads asked for meanwhile stands in rows of its own.
  const int64_t others = audit.ledger.DeviceBytes(event.device) - event.held_before;
  return free ? std::optional(*event.free_before - *free - others) : std::nullopt;
}

void MeasureAfter(Event& event, What what) {
  Ledger& ledger = Audit::Get().ledger;
  if (event.device == kNoDevice) return;
  const RowKey row = RowOf(what, event.device);
  if (!event.done()) return ledger.Fail(row, event.nanoseconds);
  ledger.Count(row, MeasuredBytes(event).value_or(0), event.nanoseconds);
}

void Initialisation::NoteDone(unsigned) { Audit::Get().NoteInitialised(""); }

void Initialisation::After(Event& event, unsigned) {
  const std::string name = event.done() ? "" : RealDriver::Get().ErrorName(static_cast<CUresult>(event.result));
  Audit::Get().NoteInitialised(name);
}

void MadeMemory::After(Event& event, CUdeviceptr* pointer, size_t bytes) {
  EnterMade(event, What::kMemory, event.done() ? *pointer : 0, InGranules(bytes), RealDriver::Get().CurrentDevice());
}

void MadeMemory::After(Event& event, CUdeviceptr* pointer, size_t* pitch, size_t width, size_t height, unsigned) {
  After(event, pointer, (event.done() ? *pitch : width) * height);
}

void MadeManaged::After(Event& event, CUdeviceptr* pointer, size_t bytes, unsigned) {
  EnterMade(event, What::kManaged, event.done() ? *pointer : 0, bytes, kNoDevice);
}

void MadeInPool::After(Event& event, CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  const RealDriver& driver = RealDriver::Get();
  const int device = driver.CurrentDevice();
  if (IsCaptured(event, stream)) return EnterInGraph(event, bytes, device);
  CUmemoryPool pool = nullptr;
  if (device != kNoDevice && driver.cuDeviceGetMemPool != nullptr) driver.cuDeviceGetMemPool(&pool, device);
  EnterInPool(event, pointer, bytes, pool, device);
}

void MadeInPool::After(Event& event, CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
  const int device = RealDriver::Get().CurrentDevice();
  if (IsCaptured(event, stream)) return EnterInGraph(event, bytes, device);
  EnterInPool(event, pointer, bytes, pool, device);
}

void EndedPool::Before(Event&, CUmemoryPool pool) { Audit::Get().memory.ForgetPool(pool); }

void EndedMemory::Before(Event& event, CUdeviceptr pointer) {
  for (const What what : {What::kMemory, What::kInPools, What::kManaged}) TakeEnded(event, what, pointer);
}

void MadeHostMemory::After(Event& event, void** pointer, size_t bytes) {
  EnterMade(event, What::kHostMemory, event.done() ? KeyOf(*pointer) : 0, bytes, kNoDevice);
}

void PinnedHostMemory::After(Event& event, void* pointer, size_t bytes, unsigned) {
  EnterMade(event, What::kHostPinned, KeyOf(pointer), bytes, kNoDevice);
}

void EndedHostMemory::Before(Event& event, void* pointer) {
  for (const What what : {What::kHostMemory, What::kHostPinned}) TakeEnded(event, what, KeyOf(pointer));
}

void ReservedAddresses::After(Event& event, CUdeviceptr* pointer, size_t bytes, size_t, CUdeviceptr,
                              unsigned long long) {
  EnterMade(event, What::kAddresses, event.done() ? *pointer : 0, bytes, kNoDevice);
}

void EndedAddresses::Before(Event& event, CUdeviceptr pointer, size_t) { TakeEnded(event, What::kAddresses, pointer); }

void MadePhysical::After(Event& event, CUmemGenericAllocationHandle* handle, size_t bytes,
                         const CUmemAllocationProp* properties, unsigned long long flags) {
  const uint64_t key = event.done() ? Audit::Get().physical.Make(*handle) : kNoPhysical;
  EnterMade(event, What::kPhysical, key, bytes, RoomOn(handle, bytes, properties, flags));
}

int MadePhysical::RoomOn(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp* properties,
                         unsigned long long) {
  const bool on_device = properties != nullptr && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  return on_device ? properties->location.id : kNoDevice;
}

void ReleasedHandle::Before(Event& event, CUmemGenericAllocationHandle handle) {
  event.physical = Audit::Get().physical.TakeHandle(handle);
}

void ReleasedHandle::After(Event& event, CUmemGenericAllocationHandle handle) {
  PhysicalBook& physical = Audit::Get().physical;
  if (!event.done()) return physical.PutBackHandle(handle, event.physical);
  if (physical.DropHandle(event.physical)) EnterGone(event.physical, event.nanoseconds);
}

void RetainedHandle::After(Event& event, CUmemGenericAllocationHandle* handle, void* address) {
  if (event.done()) Audit::Get().physical.Retain(*handle, KeyOf(address));
}

void Mapped::After(Event& event, CUdeviceptr address, size_t bytes, size_t, CUmemGenericAllocationHandle handle,
                   unsigned long long) {
  EnterMade(event, What::kMapping, address, bytes, RealDriver::Get().CurrentDevice());
  if (event.done()) Audit::Get().physical.Map(address, bytes, handle);
}

void Unmapped::Before(Event& event, CUdeviceptr address, size_t bytes) {
  event.unmapped = Audit::Get().physical.TakeMapped(address, bytes);
  for (const MappedPart& part : event.unmapped) TakeEnded(event, What::kMapping, part.address);
}

void Unmapped::After(Event& event, CUdeviceptr, size_t) {
  PhysicalBook& physical = Audit::Get().physical;
  EnterEnded(event);
  if (!event.done()) return physical.PutBackMapped(event.unmapped);
  for (const MappedPart& part : event.unmapped) {
    if (physical.DropMapped(part.physical)) EnterGone(part.physical, 0);
  }
}

void GrantedAccess::After(Event& event, CUdeviceptr, size_t bytes, const CUmemAccessDesc*, size_t count) {
  Ledger& ledger = Audit::Get().ledger;
  const RowKey row = RowOf(What::kAccess, RealDriver::Get().CurrentDevice());
  if (!event.done()) return ledger.Fail(row, event.nanoseconds);
  ledger.Count(row, static_cast<int64_t>(bytes * count), event.nanoseconds);
}

void ExportedHandle::After(Event& event, void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                           unsigned long long) {
  ExportedAddress::After(event, nullptr, 0);
}

void ExportedAddress::After(Event& event, CUipcMemHandle*, CUdeviceptr) {
  Ledger& ledger = Audit::Get().ledger;
  const RowKey row = RowOf(What::kExport, RealDriver::Get().CurrentDevice());
  if (!event.done()) return ledger.Fail(row, event.nanoseconds);
  ledger.Count(row, 0, event.nanoseconds);
}

void ImportedHandle::After(Event& event, CUmemGenericAllocationHandle* handle, void*, CUmemAllocationHandleType) {
  const uint64_t key = event.done() ? Audit::Get().physical.Make(*handle) : kNoPhysical;
  EnterMade(event, What::kImport, key, 0, RealDriver::Get().CurrentDevice());  // its bytes are known to mappings alone
}

void OpenedAddress::After(Event& event, CUdeviceptr* pointer, CUipcMemHandle, unsigned) {
  const RealDriver& driver = RealDriver::Get();
  size_t bytes = 0;
  if (event.done() && driver.cuMemGetAddressRange != nullptr) {
    CUdeviceptr base = 0;
    if (driver.cuMemGetAddressRange(&base, &bytes, *pointer) != CUDA_SUCCESS) bytes = 0;
  }
  EnterMade(event, What::kOpened, event.done() ? *pointer : 0, bytes, driver.CurrentDevice());
}

void ClosedAddress::Before(Event& event, CUdeviceptr pointer) { TakeEnded(event, What::kOpened, pointer); }

void MadeContext::BeforeContext(Event& event, CUdevice device) {
  Audit::Get().memory.NoteBefore(device);
  MeasureBefore(event, device);
}

void MadeContext::AfterContext(Event& event, CUcontext* context, CUdevice device) {
  if (event.done()) Audit::Get().memory.NoteContext(device, *context);
  MeasureAfter(event, What::kContext);
}

void MadeContext::NoteContext(CUcontext context, CUdevice device) { run::Streams::Get().MadeContext(context, device); }

void MadeStream::NoteStream(CUstream stream) { run::Streams::Get().Made(stream); }

void EndedStream::NoteBefore(CUstream stream) { run::Streams::Get().Ends(stream); }

void EndedContext::NoteBefore(CUcontext context) { run::Streams::Get().EndedContext(context); }

// Others may retain the context still.
void ReleasedDevice::NoteDone(CUdevice device) {
  unsigned flags = 0;
  int active = 0;
  const auto ask = RealDriver::Get().cuDevicePrimaryCtxGetState;
  if (ask != nullptr && ask(device, &flags, &active) == CUDA_SUCCESS && active == 0) {
    run::Streams::Get().EndedDevice(device);
  }
}

void ResetDevice::After(Event& event, CUdevice device) {
  if (!event.done()) return;
  for (const What what : {What::kMemory, What::kArray}) Audit::Get().ledger.ForgetAll(what, device);
  Audit::Get().memory.ForgetContext(device);
}

}  // namespace commpool::audit
