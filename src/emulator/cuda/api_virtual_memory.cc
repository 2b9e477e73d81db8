// Virtual memory management: handles, ranges, mappings, access, export and import.
#include <algorithm>
#include <cstring>

#include "src/emulator/cuda/api.h"
#include "src/emulator/cuda/physical.h"
#include "src/library/base/bytes.h"

using namespace commpool::internal::emulator;  // NOLINT: this file is C on the outside

namespace {

bool IsMultiple(const Machine& machine, uint64_t value) { return value % machine.description.granularity() == 0; }

CUresult CheckProperties(const Machine& machine, const CUmemAllocationProp& properties) {
  constexpr unsigned kWindowsTypes = CU_MEM_HANDLE_TYPE_WIN32 | CU_MEM_HANDLE_TYPE_WIN32_KMT;
  if (properties.type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if ((properties.requestedHandleTypes & kWindowsTypes) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((properties.allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL) != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool on_device = properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  if (!on_device && properties.allocFlags.gpuDirectRDMACapable != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool anywhere = properties.location.type == CU_MEM_LOCATION_TYPE_HOST;
  if (anywhere && properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_INVALID_VALUE;
  if (properties.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) {
    const std::string host_numa = machine.description.Value("host_numa");
    if (host_numa == "no") return CUDA_ERROR_NOT_SUPPORTED;
    if (host_numa == "denied") return CUDA_ERROR_NOT_PERMITTED;  // as some drivers do that have the attribute
  }
  if ((properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0) {
    const std::string fabric = machine.description.Value("fabric");
    if (fabric == "no") return CUDA_ERROR_NOT_SUPPORTED;
    if (fabric == "denied") return CUDA_ERROR_NOT_PERMITTED;  // no IMEX channel, as on most machines
  }
  if (properties.allocFlags.gpuDirectRDMACapable != 0 && std::string(machine.description.Value("rdma")) == "no") {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

Handle* FindHandle(Machine& machine, CUmemGenericAllocationHandle handle) {
  const auto found = machine.handles.find(handle);
  return found == machine.handles.end() ? nullptr : &found->second;
}

CUmemGenericAllocationHandle AddHandle(Machine& machine, std::shared_ptr<Physical> physical) {
  const CUmemGenericAllocationHandle handle = machine.next_handle++;
  machine.handles.emplace(handle, Handle{std::move(physical), 1});
  return handle;
}

bool IsHost(CUmemLocationType type) {
  return type == CU_MEM_LOCATION_TYPE_HOST || type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

// Checks whether the driver may set all of the access. The caller sets nothing before the answer is yes.
CUresult CheckDescription(const Machine& machine, const MappedRange& mapping, const CUmemAccessDesc& access) {
  const BankLocation owner = machine.LocationOf(*mapping.physical->bank);
  const bool of_device = owner.kind == BankLocation::Kind::kDevice;
  const bool for_reading = access.flags == CU_MEM_ACCESS_FLAGS_PROT_READ;
  if (!for_reading && access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
      access.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // An H200 grants it to a device; nobody has shown what the host gets.
  if (for_reading && IsHost(access.location.type)) return CUDA_ERROR_NOT_SUPPORTED;
  if (IsHost(access.location.type)) return of_device ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
  const int device = access.location.id;
  if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE || device < 0 || device >= machine.description.devices()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return of_device && !machine.description.Linked(device, owner.id) ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

void SetAccessOf(Machine& machine, MappedRange& mapping, const CUmemAccessDesc& access) {
  const bool granted = access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (IsHost(access.location.type)) {
    machine.addresses.ShowToHost(mapping, granted);
    return;
  }
  mapping.devices.erase(access.location.id);
  mapping.readers.erase(access.location.id);
  if (granted) mapping.devices.insert(access.location.id);
  if (access.flags == CU_MEM_ACCESS_FLAGS_PROT_READ) mapping.readers.insert(access.location.id);
}

}  // namespace

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags option) {
  return Call("cuMemGetAllocationGranularity", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (granularity == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *granularity = machine.description.granularity();  // the same for every location, even one that does not exist
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags) {
  return Call(
      "cuMemAddressReserve", Needs::kInitialised,
      [&](Machine& machine, auto&) {
        if (address == nullptr || bytes == 0 || !IsMultiple(machine, bytes) || flags != 0) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        if (alignment != 0 && !commpool::internal::IsPowerOfTwo(alignment)) return CUDA_ERROR_INVALID_VALUE;
        return machine.addresses.Reserve(bytes, std::max<uint64_t>(alignment, machine.description.granularity()),
                                         address, wanted);
      },
      bytes);
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  return Call("cuMemAddressFree", Needs::kInitialised, [&](Machine& machine, auto&) {
    const CUresult result = machine.addresses.Free(address, bytes);
    if (result != CUDA_SUCCESS) return result;
    machine.races.blocks().SetAsleep(address, bytes, false);
    machine.races.blocks().Forget(address, bytes);  // the memory was asleep until now
    return result;
  });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long flags) {
  return Call(
      "cuMemCreate", Needs::kInitialised,
      [&](Machine& machine, auto&) {
        if (handle == nullptr || properties == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        if (bytes == 0 || !IsMultiple(machine, bytes)) return CUDA_ERROR_INVALID_VALUE;
        CUresult result = CheckProperties(machine, *properties);
        if (result != CUDA_SUCCESS) return result;
        std::shared_ptr<Physical> physical;
        result = MakePhysical(machine, bytes, *properties, &physical);
        if (result == CUDA_SUCCESS) *handle = AddHandle(machine, std::move(physical));
        return result;
      },
      bytes);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return Call("cuMemRelease", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (machine.multicasts.Release(handle)) return CUDA_SUCCESS;
    Handle* const found = FindHandle(machine, handle);
    if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (--found->references == 0) machine.handles.erase(handle);  // mappings keep the memory alive
    return CUDA_SUCCESS;
  });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  return Call("cuMemRetainAllocationHandle", Needs::kInitialised, [&](Machine& machine, auto&) {
    const MappedRange* const mapping = machine.addresses.Find(reinterpret_cast<CUdeviceptr>(address));
    if (handle == nullptr || mapping == nullptr || mapping->linear || mapping->pinned_host || mapping->of_pool) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    for (auto& [known, entry] : machine.handles) {
      if (entry.physical != mapping->physical) continue;
      ++entry.references;
      *handle = known;
      return CUDA_SUCCESS;
    }
    *handle = AddHandle(machine, mapping->physical);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  return Call("cuMemGetAllocationPropertiesFromHandle", Needs::kInitialised, [&](Machine& machine, auto&) {
    const Handle* const found = FindHandle(machine, handle);
    if (properties == nullptr || found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *properties = found->physical->properties;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  return Call(
      "cuMemMap", Needs::kInitialised,
      [&](Machine& machine, auto&) {
        const Handle* const found = FindHandle(machine, handle);
        if (found == nullptr || flags != 0 || bytes == 0 || !IsMultiple(machine, address)) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        if (offset != 0 || bytes != found->physical->bytes) return CUDA_ERROR_NOT_SUPPORTED;
        return machine.addresses.Map(address, bytes, found->physical);
      },
      bytes);
}

// Hardware accepts an empty range and gaps. Only a part of a mapping is an error.
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  return Call(
      "cuMemUnmap", Needs::kInitialised,
      [&](Machine& machine, auto&) {
        if (bytes == 0 || !IsMultiple(machine, bytes) || !IsMultiple(machine, address)) return CUDA_ERROR_INVALID_VALUE;
        uint64_t mapped = 0;
        for (const MappedRange* mapping : machine.addresses.Touching(address, bytes)) {
          const bool whole = mapping->address >= address && mapping->bytes <= address + bytes - mapping->address;
          if (!whole || mapping->linear || mapping->pinned_host || mapping->of_pool) return CUDA_ERROR_INVALID_VALUE;
          mapped += mapping->bytes;
        }
        if (mapped != bytes) {
          machine.logbook.Report("unmapping what is not mapped", std::to_string(bytes - mapped) + " of " +
                                                                     std::to_string(bytes) + " bytes of cuMemUnmap");
        }
        machine.ReportIfInUse(address, bytes, "cuMemUnmap");
        machine.races.Unmapping(address, bytes, machine.addresses);
        const bool running = machine.scheduler.IsRunningOn(address, bytes);
        machine.addresses.Unmap(address, bytes, running ? AddressSpace::Leave::kScrap : AddressSpace::Leave::kNothing);
        return CUDA_SUCCESS;
      },
      bytes);
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  return Call("cuMemSetAccess", Needs::kInitialised, [&](Machine& machine, auto&) {
    const std::vector<MappedRange*> covering = machine.addresses.Covering(address, bytes);
    if (access == nullptr || count == 0 || covering.empty() || !IsMultiple(machine, bytes)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const MappedRange& last = *covering.back();
    if (covering.front()->address != address || last.address + last.bytes != address + bytes) {
      return CUDA_ERROR_INVALID_VALUE;  // half a mapping
    }
    for (const MappedRange* mapping : covering) {
      if (mapping->linear || mapping->pinned_host || mapping->of_pool) return CUDA_ERROR_INVALID_VALUE;
      for (size_t index = 0; index < count; ++index) {
        const CUresult result = CheckDescription(machine, *mapping, access[index]);
        if (result != CUDA_SUCCESS) return result;
      }
    }
    for (MappedRange* mapping : covering) {
      for (size_t index = 0; index < count; ++index) SetAccessOf(machine, *mapping, access[index]);
    }
    machine.scheduler.host_time_us += AccessLatency(covering.size(), count, bytes);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  return Call("cuMemGetAccess", Needs::kInitialised, [&](Machine& machine, auto&) {
    const MappedRange* const mapping = machine.addresses.Find(address);
    if (flags == nullptr || location == nullptr || mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto may = [&](Machine::Use use) {
      return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? machine.MayUse(use, *mapping, location->id) : mapping->cpu;
    };
    *flags = may(Machine::Use::kWrite)  ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
             : may(Machine::Use::kRead) ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                        : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  return Call("cuMemExportToShareableHandle", Needs::kInitialised, [&](Machine& machine, auto&) {
    const Handle* const found = FindHandle(machine, handle);
    if (shareable == nullptr || found == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    const Physical& physical = *found->physical;
    if ((physical.properties.requestedHandleTypes & type) == 0) return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
      const IpcPlace place = PlaceOf(physical);
      std::memcpy(static_cast<CUmemFabricHandle*>(shareable)->data, &place, sizeof(place));
      return CUDA_SUCCESS;
    }
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
    const int descriptor = found->physical->bank->Export(found->physical->record);
    if (descriptor < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    *static_cast<int*>(shareable) = descriptor;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                        CUmemAllocationHandleType type) {
  return Call("cuMemImportFromShareableHandle", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Physical> physical;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC && shareable != nullptr) {
      IpcPlace place;
      std::memcpy(&place, static_cast<const CUmemFabricHandle*>(shareable)->data, sizeof(place));
      if (place.magic == IpcPlace::kMagic) result = ImportPhysical(machine, place, &physical);
    } else if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
      // The handle is the descriptor itself, cast to a pointer.
      result = ImportPhysical(machine, static_cast<int>(reinterpret_cast<intptr_t>(shareable)), &physical);
    }
    if (result == CUDA_SUCCESS) *handle = AddHandle(machine, std::move(physical));
    return result;
  });
}
