// Memory of cuMemAlloc, pinned host memory, and queries about pointers.
#include <algorithm>

#include "src/emulator/cuda/api.h"
#include "src/emulator/cuda/physical.h"
#include "src/emulator/cuda/whole_memory.h"
#include "src/library/base/bytes.h"

using namespace commpool::internal::emulator;  // NOLINT: this file is C on the outside

namespace {

// Makes memory with its own addresses; one call makes it and one call frees it.
CUresult AllocateWhole(Machine& machine, Whole kind, const CUmemLocation& location, size_t bytes,
                       CUdeviceptr* address) {
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  // Hardware gives cuMemAlloc whole pages of 2 MiB, and small allocations share a page. Here each has its own. Pinned
  // memory comes in pages of the host.
  const uint64_t page = kind == Whole::kPinnedHost ? kHostPageBytes : machine.description.granularity();
  const std::optional<uint64_t> rounded = commpool::internal::CheckedRoundUp(bytes, page);
  if (!rounded) return CUDA_ERROR_OUT_OF_MEMORY;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = location;
  std::shared_ptr<Physical> physical;
  const CUresult result = MakePhysical(machine, *rounded, properties, &physical);
  return result == CUDA_SUCCESS ? MapWhole(machine, std::move(physical), kind, bytes, address) : result;
}

// Finds the allocation that holds an address. A pool maps memory in steps, and an allocation takes a part of some
// steps. Returns an empty range if the pool has allocated nothing there.
AsyncExtent AllocationAt(const Machine& machine, const MappedRange* mapping, CUdeviceptr address) {
  if (mapping == nullptr) return {};
  if (!mapping->of_pool) return {mapping->address, mapping->requested};
  const std::optional<AsyncMemory::Allocation> ordered = machine.async_memory.Find(address);
  return ordered ? AsyncExtent{ordered->address, ordered->bytes} : AsyncExtent{};
}

template <typename Value>
CUresult Give(void* to, Value value) {
  *static_cast<Value*>(to) = value;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return Call("cuMemGetInfo", Needs::kCurrentContext, [&](Machine& machine, auto&) {
    MemoryBank& bank = *machine.device_banks[static_cast<size_t>(CurrentDevice())];
    if (free_bytes != nullptr) *free_bytes = bank.capacity() - bank.used();
    if (total_bytes != nullptr) *total_bytes = bank.capacity();
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  return Call(
      "cuMemAlloc", Needs::kCurrentContext,
      [&](Machine& machine, auto&) {
        if (const CUresult refused = machine.captures.RefuseUnsafe(); refused != CUDA_SUCCESS) return refused;
        return AllocateWhole(machine, Whole::kLinear, {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = CurrentDevice()},
                             bytes, address);
      },
      bytes);
}

CUresult cuMemFree(CUdeviceptr address) {
  return Call("cuMemFree", Needs::kInitialised, [&](Machine& machine, auto& lock) {
    if (const CUresult refused = machine.captures.RefuseUnsafe(); refused != CUDA_SUCCESS) return refused;
    if (address == 0) return CUDA_SUCCESS;
    const MappedRange* const mapping = machine.addresses.Find(address);
    if (mapping == nullptr || (!mapping->linear && !mapping->of_pool)) return CUDA_ERROR_INVALID_VALUE;
    if (mapping->openings != 0) return CUDA_ERROR_INVALID_VALUE;  // cuIpcCloseMemHandle gives it back
    const CUctx_st& context = *machine.contexts[static_cast<size_t>(machine.LocationOf(*mapping->physical->bank).id)];
    if (context.sticky != CUDA_SUCCESS) return context.sticky;
    if (mapping->of_pool) return machine.async_memory.Free(address);
    if (mapping->physical->bank->IsHeldElsewhere(mapping->physical->record)) {
      machine.logbook.Report("freed while another process has it open", "cuMemFree of memory that is open elsewhere");
    }
    return FreeWhole(machine, lock, Whole::kLinear, address, "cuMemFree");
  });
}

// cuMemAllocHost and cuMemHostAlloc differ in name alone: all pinned memory is portable and mapped.
static CUresult AllocatePinned(const char* call, void** pointer, size_t bytes, bool known_flags) {
  return Call(
      call, Needs::kCurrentContext,
      [&](Machine& machine, auto&) {
        if (const CUresult refused = machine.captures.RefuseUnsafe(); refused != CUDA_SUCCESS) return refused;
        if (pointer == nullptr || !known_flags) return CUDA_ERROR_INVALID_VALUE;
        CUdeviceptr address = 0;
        const CUresult result = AllocateWhole(machine, Whole::kPinnedHost,
                                              {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0}, bytes, &address);
        if (result == CUDA_SUCCESS) *pointer = reinterpret_cast<void*>(address);
        return result;
      },
      bytes);
}

CUresult cuMemAllocHost(void** pointer, size_t bytes) { return AllocatePinned("cuMemAllocHost", pointer, bytes, true); }

CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned int flags) {
  constexpr unsigned kKnown = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  return AllocatePinned("cuMemHostAlloc", pointer, bytes, (flags & ~kKnown) == 0);
}

CUresult cuMemFreeHost(void* pointer) {
  return Call("cuMemFreeHost", Needs::kCurrentContext, [&](Machine& machine, auto& lock) {
    if (const CUresult refused = machine.captures.RefuseUnsafe(); refused != CUDA_SUCCESS) return refused;
    return FreeWhole(machine, lock, Whole::kPinnedHost, reinterpret_cast<CUdeviceptr>(pointer), "cuMemFreeHost");
  });
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  return Call("cuMemGetAddressRange", Needs::kCurrentContext, [&](Machine& machine, auto&) {
    const MappedRange* const mapping = machine.addresses.Find(address);
    const AsyncExtent whole = AllocationAt(machine, mapping, address);
    if (mapping == nullptr || whole.bytes == 0) return CUDA_ERROR_NOT_FOUND;
    if (base != nullptr) *base = whole.offset;
    if (bytes != nullptr) *bytes = whole.bytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  return Call("cuPointerGetAttribute", Needs::kInitialised, [&](Machine& machine, auto&) {
    const MappedRange* const mapping = machine.addresses.Find(address);
    const AsyncExtent whole = AllocationAt(machine, mapping, address);
    if (data == nullptr || mapping == nullptr || whole.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    const BankLocation location = machine.LocationOf(*mapping->physical->bank);
    const bool on_device = location.kind == BankLocation::Kind::kDevice;
    switch (attribute) {
      case CU_POINTER_ATTRIBUTE_CONTEXT:
        return Give<CUcontext>(
            data, on_device && mapping->linear ? machine.contexts[static_cast<size_t>(location.id)].get() : nullptr);
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return Give<unsigned>(data, on_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return Give<int>(data, on_device ? location.id : CurrentContext() == nullptr ? 0 : CurrentDevice());
      case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:  // for the current context, if that may access it
        if (CurrentContext() != nullptr && !machine.MayUse(Machine::Use::kRead, *mapping, CurrentDevice()))
          return CUDA_ERROR_INVALID_VALUE;
        return Give<CUdeviceptr>(data, address);
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        return Give<CUdeviceptr>(data, whole.offset);
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return Give<size_t>(data, whole.bytes);
      case CU_POINTER_ATTRIBUTE_MAPPED:
        return Give<int>(data, 1);
      case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        return Give<uint64_t>(data, mapping->buffer_id);
      case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return Give<unsigned>(data, 0);
      case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return Give<unsigned>(data, on_device && mapping->linear ? 1 : 0);
      case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        return Give<int>(data,
                         mapping->linear || mapping->physical->properties.allocFlags.gpuDirectRDMACapable != 0 ? 1 : 0);
      case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return Give<uint64_t>(data, mapping->physical->properties.requestedHandleTypes);
      case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: {
        const std::optional<AsyncMemory::Allocation> ordered = machine.async_memory.Find(address);
        return Give<CUmemoryPool>(data, ordered ? ordered->pool : nullptr);
      }
      default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
  });
}
