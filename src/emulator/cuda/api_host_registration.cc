// Host memory of the program that devices may use while it is registered.
#include <sys/mman.h>

#include "src/emulator/cuda/api.h"
#include "src/emulator/cuda/physical.h"
#include "src/emulator/cuda/whole_memory.h"
#include "src/library/base/bytes.h"

using namespace commpool::internal::emulator;  // NOLINT: this file is C on the outside

namespace {

constexpr unsigned kKnownFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;

// Whether the process has all of these addresses.
bool AreMapped(CUdeviceptr address, uint64_t bytes) {
  const uint64_t start = address / kHostPageBytes * kHostPageBytes;
  return msync(reinterpret_cast<void*>(start), address + bytes - start, MS_ASYNC) == 0;
}

// Pinned memory and registered memory are the host's; nobody may register what is a device's.
CUresult CheckRegistrable(Machine& machine, CUdeviceptr address, uint64_t bytes) {
  for (const MappedRange* mapping : machine.addresses.Touching(address, bytes)) {
    return mapping->pinned_host ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : CUDA_ERROR_INVALID_VALUE;
  }
  return AreMapped(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult cuMemHostRegister(void* pointer, size_t bytes, unsigned int flags) {
  return Call(
      "cuMemHostRegister", Needs::kCurrentContext,
      [&](Machine& machine, auto&) {
        if (const CUresult refused = machine.captures.RefuseUnsafe(); refused != CUDA_SUCCESS) return refused;
        const auto address = reinterpret_cast<CUdeviceptr>(pointer);
        const bool overflows = !commpool::internal::CheckedAdd(address, bytes);
        if (pointer == nullptr || bytes == 0 || overflows) return CUDA_ERROR_INVALID_VALUE;
        if ((flags & (CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY)) != 0) {
          return CUDA_ERROR_NOT_SUPPORTED;  // of device files, and of memory for reading alone: not modelled
        }
        if ((flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
        CUresult result = CheckRegistrable(machine, address, bytes);
        if (result != CUDA_SUCCESS) return result;
        CUmemAllocationProp properties = {};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        // Nobody asks where the program's pages are.
        properties.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0};
        std::shared_ptr<Physical> physical;
        result = MakePhysical(machine, commpool::internal::RoundUp(bytes, kHostPageBytes), properties, &physical);
        if (result == CUDA_SUCCESS) machine.addresses.Register(address, bytes, std::move(physical));
        return result;
      },
      bytes);
}

// The driver does not promise to wait for work on the memory.
CUresult cuMemHostUnregister(void* pointer) {
  return Call("cuMemHostUnregister", Needs::kCurrentContext, [&](Machine& machine, auto&) {
    if (const CUresult refused = machine.captures.RefuseUnsafe(); refused != CUDA_SUCCESS) return refused;
    const auto address = reinterpret_cast<CUdeviceptr>(pointer);
    const MappedRange* const mapping = machine.addresses.Find(address);
    if (mapping == nullptr || !mapping->registered) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (mapping->address != address) return CUDA_ERROR_INVALID_VALUE;
    const uint64_t bytes = mapping->bytes;
    machine.ReportIfInUse(address, bytes, "cuMemHostUnregister");
    machine.races.blocks().Forget(address, bytes);
    machine.addresses.Unregister(address);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* address, void* pointer, unsigned int flags) {
  return Call("cuMemHostGetDevicePointer", Needs::kCurrentContext, [&](Machine& machine, auto&) {
    const MappedRange* const mapping = machine.addresses.Find(reinterpret_cast<CUdeviceptr>(pointer));
    if (address == nullptr || flags != 0 || mapping == nullptr || !mapping->pinned_host) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *address = reinterpret_cast<CUdeviceptr>(pointer);
    return CUDA_SUCCESS;
  });
}
