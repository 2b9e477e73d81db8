// Virtual memory management: handles, ranges, mappings, access, export and import.
#include <algorithm>

#include "src/base/bytes.h"
#include "src/emulator/cuda/api.h"
#include "src/emulator/cuda/physical.h"

using namespace commpool::emulator;  // NOLINT: this file is C on the outside

namespace {

bool IsMultiple(const Machine& machine, uint64_t value) { return value % machine.description.granularity() == 0; }

CUresult CheckProperties(const Machine& machine, const CUmemAllocationProp& properties) {
  if (properties.type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if ((properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0) {
    const std::string fabric = machine.description.Value("fabric");
    if (fabric == "no") return CUDA_ERROR_NOT_SUPPORTED;
    if (fabric == "denied") return CUDA_ERROR_NOT_PERMITTED;  // no IMEX channel: the usual case
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

CUresult SetAccessOf(Machine& machine, MappedRange& mapping, const CUmemAccessDesc& access) {
  const bool granted = access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const BankLocation owner = mapping.physical->bank->location();
  switch (access.location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE: {
      const int device = access.location.id;
      if (device < 0 || device >= machine.description.devices()) return CUDA_ERROR_INVALID_DEVICE;
      if (owner.kind == BankLocation::Kind::kDevice && !machine.description.Linked(device, owner.id)) {
        return CUDA_ERROR_INVALID_DEVICE;
      }
      if (granted) {
        mapping.devices.insert(device);
      } else {
        mapping.devices.erase(device);
      }
      return CUDA_SUCCESS;
    }
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      if (owner.kind == BankLocation::Kind::kDevice) return CUDA_ERROR_INVALID_VALUE;
      machine.addresses.ShowToHost(mapping, granted);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags) {
  return Call("cuMemGetAllocationGranularity", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (granularity == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<MemoryBank> bank;
    const CUresult result = machine.BankOf(properties->location, &bank);
    if (result == CUDA_SUCCESS) *granularity = machine.description.granularity();
    return result;
  });
}

CUresult cuMulticastGetGranularity(size_t* granularity, const CUmulticastObjectProp* properties,
                                   CUmulticastGranularity_flags) {
  return Call("cuMulticastGetGranularity", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (granularity == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (std::string(machine.description.Value("multicast")) == "no") return CUDA_ERROR_NOT_SUPPORTED;
    *granularity = machine.description.granularity();
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  return Call(
      "cuMemAddressReserve", Needs::kInitialised,
      [&](Machine& machine, auto&) {
        if (address == nullptr || bytes == 0 || !IsMultiple(machine, bytes) || flags != 0) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        if (alignment != 0 && !commpool::IsPowerOfTwo(alignment)) return CUDA_ERROR_INVALID_VALUE;
        return machine.addresses.Reserve(bytes, std::max<uint64_t>(alignment, machine.description.granularity()),
                                         address);
      },
      bytes);
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  return Call("cuMemAddressFree", Needs::kInitialised,
              [&](Machine& machine, auto&) { return machine.addresses.Free(address, bytes); });
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
    Handle* const found = FindHandle(machine, handle);
    if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (--found->references == 0) machine.handles.erase(handle);  // the memory lives on while it is mapped
    return CUDA_SUCCESS;
  });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  return Call("cuMemRetainAllocationHandle", Needs::kInitialised, [&](Machine& machine, auto&) {
    const MappedRange* const mapping = machine.addresses.Find(reinterpret_cast<CUdeviceptr>(address));
    if (handle == nullptr || mapping == nullptr || mapping->linear || mapping->pinned_host) {
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
        if (found == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        if (offset != 0) return CUDA_ERROR_NOT_SUPPORTED;  // as an H200 answers
        if (bytes == 0 || bytes > found->physical->bytes || !IsMultiple(machine, bytes) ||
            !IsMultiple(machine, address)) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        return machine.addresses.Map(address, bytes, found->physical);
      },
      bytes);
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  return Call(
      "cuMemUnmap", Needs::kInitialised,
      [&](Machine& machine, auto& lock) {
        const std::vector<MappedRange*> covering = machine.addresses.Covering(address, bytes);
        const bool whole = !covering.empty() && std::none_of(covering.begin(), covering.end(), [](const auto* mapping) {
          return mapping->linear || mapping->pinned_host;
        });
        if (!whole) return CUDA_ERROR_INVALID_VALUE;
        machine.ReportIfInUse(address, bytes, "cuMemUnmap");
        // Reported; what the worker is doing at this moment must still not lose its memory under it.
        while (machine.scheduler.PendingUse(address, bytes) != nullptr) {
          for (const auto& context : machine.contexts) machine.scheduler.WaitForDevice(lock, context->device);
        }
        return machine.addresses.Unmap(address, bytes);
      },
      bytes);
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  return Call(
      "cuMemSetAccess", Needs::kInitialised,
      [&](Machine& machine, auto&) {
        const std::vector<MappedRange*> covering = machine.addresses.Covering(address, bytes);
        if (access == nullptr || count == 0 || covering.empty() || !IsMultiple(machine, bytes)) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        for (MappedRange* mapping : covering) {
          if (mapping->linear || mapping->pinned_host) return CUDA_ERROR_INVALID_VALUE;
          for (size_t index = 0; index < count; ++index) {
            const CUresult result = SetAccessOf(machine, *mapping, access[index]);
            if (result != CUDA_SUCCESS) return result;
          }
        }
        return CUDA_SUCCESS;
      },
      bytes);
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  return Call("cuMemGetAccess", Needs::kInitialised, [&](Machine& machine, auto&) {
    const MappedRange* const mapping = machine.addresses.Find(address);
    if (flags == nullptr || location == nullptr || mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const bool granted =
        location->type == CU_MEM_LOCATION_TYPE_DEVICE ? machine.MayAccess(*mapping, location->id) : mapping->cpu;
    *flags = granted ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  return Call("cuMemExportToShareableHandle", Needs::kInitialised, [&](Machine& machine, auto&) {
    const Handle* const found = FindHandle(machine, handle);
    if (shareable == nullptr || found == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    if ((found->physical->properties.requestedHandleTypes & type) == 0) return CUDA_ERROR_INVALID_VALUE;
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
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    std::shared_ptr<Physical> physical;
    // The handle is the descriptor itself, passed as a pointer.
    const CUresult result = ImportPhysical(machine, static_cast<int>(reinterpret_cast<intptr_t>(shareable)), &physical);
    if (result == CUDA_SUCCESS) *handle = AddHandle(machine, std::move(physical));
    return result;
  });
}
