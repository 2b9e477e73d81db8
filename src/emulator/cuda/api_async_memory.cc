// Stream-ordered memory and its pools. The refusals and their error codes were measured on H200s.
#include <limits>

#include "src/emulator/cuda/api.h"
#include "src/library/base/bytes.h"

using namespace commpool::internal::emulator;  // NOLINT: this file is C on the outside

namespace {

bool IsDevice(const Machine& machine, int device) { return device >= 0 && device < machine.description.devices(); }

CUresult AllocateFrom(Machine& machine, CUmemoryPool pool, CUdeviceptr* address, size_t bytes, CUstream_st* stream) {
  // A real driver makes a node that allocates, at addresses that belong to the graph.
  if (machine.captures.Of(stream) != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  *address = 0;
  return bytes == 0 ? CUDA_SUCCESS : machine.async_memory.Allocate(pool, bytes, stream, address);
}

// Finds the reuse policy that an attribute means; null for another attribute.
bool* FindPolicy(ReusePolicies& policies, CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      return &policies.follow_events;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      return &policies.opportunistic;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return &policies.internal_dependencies;
    default:
      return nullptr;
  }
}

// Finds the 64-bit value that an attribute means; null for another attribute.
uint64_t* FindQuantity(AsyncPool& pool, CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return &pool.release_threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return &pool.reserved.current;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return &pool.reserved.high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return &pool.used.current;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return &pool.used.high;
    default:
      return nullptr;
  }
}

CUresult CheckAccess(const Machine& machine, CUmemoryPool pool, const CUmemAccessDesc& access) {
  if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (!IsDevice(machine, access.location.id)) return CUDA_ERROR_INVALID_DEVICE;
  const bool granted = access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (!granted && access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  if (access.location.id == pool->device) return granted ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  return machine.description.Linked(access.location.id, pool->device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return Call("cuDeviceGetDefaultMemPool", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!IsDevice(machine, device)) return CUDA_ERROR_INVALID_DEVICE;
    *pool = machine.async_memory.DefaultOf(device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  return Call("cuDeviceGetMemPool", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!IsDevice(machine, device)) return CUDA_ERROR_INVALID_DEVICE;
    *pool = machine.async_memory.CurrentOf(device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  return Call("cuDeviceSetMemPool", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (!IsDevice(machine, device)) return CUDA_ERROR_INVALID_DEVICE;
    if (!machine.async_memory.IsPool(pool) || pool->device != device) return CUDA_ERROR_INVALID_VALUE;
    machine.async_memory.SetCurrent(pool);
    return CUDA_SUCCESS;
  });
}

// A captured allocation is refused, so graphs hold no memory.
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
  return Call("cuDeviceGetGraphMemAttribute", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (value == nullptr || attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) return CUDA_ERROR_INVALID_VALUE;
    if (!IsDevice(machine, device)) return CUDA_ERROR_INVALID_DEVICE;
    *static_cast<cuuint64_t*>(value) = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  return Call("cuMemPoolCreate", Needs::kInitialised, [&](Machine& machine, auto&) {
    constexpr unsigned kHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
    if (pool == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if ((properties->handleTypes & ~kHandleTypes) != 0) return CUDA_ERROR_INVALID_VALUE;
    const CUmemLocation& location = properties->location;
    if (location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (location.type != CU_MEM_LOCATION_TYPE_DEVICE || !IsDevice(machine, location.id)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t limit = std::numeric_limits<uint64_t>::max();
    if (properties->maxSize != 0)
      limit = commpool::internal::CheckedRoundUp(properties->maxSize, AsyncPool::kStep).value_or(limit);
    *pool = machine.async_memory.Create(location.id, properties->handleTypes, limit);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  return Call("cuMemPoolDestroy", Needs::kInitialised, [&](Machine& machine, auto&) {
    return machine.async_memory.IsPool(pool) ? machine.async_memory.Destroy(pool) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  return Call("cuMemPoolSetAttribute", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (value == nullptr || !machine.async_memory.IsPool(pool)) return CUDA_ERROR_INVALID_VALUE;
    AsyncPool& decisions = pool->decisions;
    if (bool* const policy = FindPolicy(decisions.policies, attribute)) {
      *policy = *static_cast<const int*>(value) != 0;
      return CUDA_SUCCESS;
    }
    const bool of_reserved = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
      decisions.release_threshold = *static_cast<const cuuint64_t*>(value);
      return CUDA_SUCCESS;
    }
    if (!of_reserved && attribute != CU_MEMPOOL_ATTR_USED_MEM_HIGH) return CUDA_ERROR_INVALID_VALUE;
    if (*static_cast<const cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
    (of_reserved ? decisions.reserved : decisions.used).Reset();
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  return Call("cuMemPoolGetAttribute", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (value == nullptr || !machine.async_memory.IsPool(pool)) return CUDA_ERROR_INVALID_VALUE;
    if (const bool* const policy = FindPolicy(pool->decisions.policies, attribute)) {
      *static_cast<int*>(value) = *policy ? 1 : 0;
      return CUDA_SUCCESS;
    }
    const uint64_t* const quantity = FindQuantity(pool->decisions, attribute);
    if (quantity == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *static_cast<cuuint64_t*>(value) = *quantity;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  return Call("cuMemPoolTrimTo", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (!machine.async_memory.IsPool(pool)) return CUDA_ERROR_INVALID_VALUE;
    // A pool keeps whole steps, so it keeps a little more than the program asked for. The threshold is exact.
    const uint64_t whole_steps = commpool::internal::CheckedRoundUp(keep, AsyncPool::kStep).value_or(keep);
    machine.async_memory.Trim(pool, whole_steps);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* access, size_t count) {
  return Call("cuMemPoolSetAccess", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (access == nullptr || !machine.async_memory.IsPool(pool)) return CUDA_ERROR_INVALID_VALUE;
    for (size_t index = 0; index < count; ++index) {
      const CUresult result = CheckAccess(machine, pool, access[index]);
      if (result != CUDA_SUCCESS) return result;
    }
    for (size_t index = 0; index < count; ++index) {
      const bool granted = access[index].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      machine.async_memory.SetAccess(pool, access[index].location.id, granted);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool pool, CUmemLocation* location) {
  return Call("cuMemPoolGetAccess", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (flags == nullptr || location == nullptr || !machine.async_memory.IsPool(pool)) return CUDA_ERROR_INVALID_VALUE;
    const bool of_device = location->type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (of_device && !IsDevice(machine, location->id)) return CUDA_ERROR_INVALID_VALUE;
    const bool granted = of_device && pool->accessible.contains(location->id);
    *flags = granted ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream handle) {
  return CallOnStream("cuMemAllocAsync", handle, [&](Machine& machine, auto&, CUstream_st* stream) {
    if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return AllocateFrom(machine, machine.async_memory.CurrentOf(stream->device), address, bytes, stream);
  });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream handle) {
  return CallOnStream("cuMemAllocFromPoolAsync", handle, [&](Machine& machine, auto&, CUstream_st* stream) {
    if (address == nullptr || !machine.async_memory.IsPool(pool)) return CUDA_ERROR_INVALID_VALUE;
    return AllocateFrom(machine, pool, address, bytes, stream);
  });
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  bool of_cu_mem_alloc = false;
  const CUresult result = CallOnStream("cuMemFreeAsync", handle, [&](Machine& machine, auto&, CUstream_st* stream) {
    if (address == 0) return CUDA_SUCCESS;
    if (machine.captures.Of(stream) != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    const MappedRange* const mapping = machine.addresses.Find(address);
    of_cu_mem_alloc = mapping != nullptr && mapping->linear;
    return of_cu_mem_alloc ? CUDA_SUCCESS : machine.async_memory.FreeAsync(address, stream);
  });
  // No stream orders memory of cuMemAlloc, so this frees it as cuMemFree does.
  return of_cu_mem_alloc ? cuMemFree(address) : result;
}
