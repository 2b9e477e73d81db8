// Memory of cuMemAlloc and events that other processes open.
#include <cstring>

#include "src/emulator/cuda/api.h"
#include "src/emulator/cuda/physical.h"
#include "src/emulator/cuda/whole_memory.h"

using namespace commpool::internal::emulator;  // NOLINT: this file is C on the outside

namespace {

template <typename IpcHandle>
void Write(const IpcPlace& place, IpcHandle* handle) {
  *handle = {};
  std::memcpy(handle->reserved, &place, sizeof(place));
}

// Returns CUDA_ERROR_INVALID_VALUE for bytes that no emulator wrote.
template <typename IpcHandle>
CUresult Read(const IpcHandle& handle, IpcPlace* place) {
  std::memcpy(place, handle.reserved, sizeof(*place));
  return place->magic == IpcPlace::kMagic ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Finds what this context has opened already.
MappedRange* FindOpened(Machine& machine, const Physical& physical, int device) {
  for (const auto& [address, mapping] : machine.addresses.mappings()) {
    const bool same = mapping.openings != 0 && mapping.physical->identity == physical.identity;
    if (same && mapping.devices.contains(device)) return machine.addresses.Find(address);
  }
  return nullptr;
}

}  // namespace

// Of any address of an allocation: who opens it gets the whole allocation.
CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  return Call("cuIpcGetMemHandle", Needs::kInitialised, [&](Machine& machine, auto&) {
    const MappedRange* const mapping = machine.addresses.Find(address);
    if (handle == nullptr || mapping == nullptr || !mapping->linear || mapping->openings != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    IpcPlace place = PlaceOf(*mapping->physical);
    place.bytes = mapping->requested;
    Write(place, handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) {
  return Call("cuIpcOpenMemHandle", Needs::kCurrentContext, [&](Machine& machine, auto&) {
    IpcPlace place;
    if (address == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = Read(handle, &place);
    if (result != CUDA_SUCCESS) return result;
    std::shared_ptr<Physical> physical;
    result = ImportPhysical(machine, place, &physical);
    if (result != CUDA_SUCCESS) return result;
    const int owner = machine.LocationOf(*physical->bank).id;
    if (owner >= machine.description.devices()) return CUDA_ERROR_INVALID_DEVICE;
    if (!machine.description.Linked(CurrentDevice(), owner)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    MappedRange* mapping = FindOpened(machine, *physical, CurrentDevice());
    if (mapping == nullptr) {
      CUdeviceptr opened = 0;
      result = MapWhole(machine, std::move(physical), Whole::kLinear, place.bytes, &opened);
      if (result != CUDA_SUCCESS) return result;
      mapping = machine.addresses.Find(opened);
      mapping->devices.insert(CurrentDevice());
    }
    ++mapping->openings;
    *address = mapping->address;
    return CUDA_SUCCESS;
  });
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  return Call("cuIpcCloseMemHandle", Needs::kInitialised, [&](Machine& machine, auto& lock) {
    MappedRange* const mapping = machine.addresses.Find(address);
    if (mapping == nullptr || mapping->address != address || mapping->openings == 0) return CUDA_ERROR_INVALID_VALUE;
    if (mapping->openings == 1) return FreeWhole(machine, lock, Whole::kLinear, address, "cuIpcCloseMemHandle");
    --mapping->openings;
    return CUDA_SUCCESS;
  });
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event) {
  return Call("cuIpcGetEventHandle", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!machine.scheduler.IsEvent(event) || (event->flags & CU_EVENT_INTERPROCESS) == 0) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    if (event->shared == nullptr) {
      event->shared = SharedEvent::Make(machine.description.NumberOf(event->device));
      if (event->shared == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
      if (event->marker != nullptr && !event->marker->done) event->marker->shown = event->shared->Record(&event->shown);
    }
    Write(event->shared->place(), handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
  return Call("cuIpcOpenEventHandle", Needs::kCurrentContext, [&](Machine& machine, auto&) {
    IpcPlace place;
    if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult bad = Read(handle, &place); bad != CUDA_SUCCESS) return bad;
    if (place.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
    std::shared_ptr<SharedEvent> shared = SharedEvent::Open(place.Open());
    if (shared == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const int device = machine.description.DeviceOf(shared->device_number());
    if (device >= machine.description.devices()) return CUDA_ERROR_INVALID_DEVICE;
    *event = machine.scheduler.CreateEvent(device, CU_EVENT_DISABLE_TIMING);
    (*event)->shared = std::move(shared);
    return CUDA_SUCCESS;
  });
}
