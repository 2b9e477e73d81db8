// Multicast objects, for the emulated NCCL and for programs that make their own. Results follow the documentation of
// the driver API. Nobody compared them with hardware, because a multicast object can hang a whole machine.
#include <algorithm>
#include <string>

#include "src/emulator/cuda/api.h"

using namespace commpool::internal::emulator;  // NOLINT: this file is C on the outside

namespace {

constexpr uint64_t kRecommendedMulticastGranularity = uint64_t{512} << 20;

bool Supported(const Machine& machine) { return std::string(machine.description.Value("multicast")) == "yes"; }

// The count includes devices that other processes of a communicator add; this process does not see those.
bool IsDevice(const Machine& machine, CUdevice device) {
  return device >= 0 && device < machine.description.all_devices();
}

CUresult CheckProperties(const Machine& machine, const CUmulticastObjectProp& properties) {
  constexpr unsigned long long kKnownTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
  if (properties.flags != 0 || properties.numDevices == 0) return CUDA_ERROR_INVALID_VALUE;
  if ((properties.handleTypes & ~kKnownTypes) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (properties.size == 0 || properties.size % machine.description.multicast_granularity() != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if ((properties.handleTypes & CU_MEM_HANDLE_TYPE_FABRIC) == 0) return CUDA_SUCCESS;
  const std::string fabric = machine.description.Value("fabric");
  if (fabric == "denied") return CUDA_ERROR_NOT_PERMITTED;  // no IMEX channel
  return fabric == "no" ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult Answer(Machine& machine, const MulticastResult& result) {
  if (!result.broken_rule.empty()) machine.logbook.Report(result.broken_rule, result.details);
  return result.result;
}

}  // namespace

CUresult cuMulticastGetGranularity(size_t* granularity, const CUmulticastObjectProp* properties,
                                   CUmulticastGranularity_flags option) {
  return Call("cuMulticastGetGranularity", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (granularity == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!Supported(machine)) return CUDA_ERROR_NOT_SUPPORTED;
    if (option != CU_MULTICAST_GRANULARITY_MINIMUM && option != CU_MULTICAST_GRANULARITY_RECOMMENDED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const uint64_t minimum = machine.description.multicast_granularity();
    *granularity =
        option == CU_MULTICAST_GRANULARITY_MINIMUM ? minimum : std::max(minimum, kRecommendedMulticastGranularity);
    return CUDA_SUCCESS;
  });
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp* properties) {
  return Call("cuMulticastCreate", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (handle == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!Supported(machine)) return CUDA_ERROR_NOT_SUPPORTED;
    const CUresult result = CheckProperties(machine, *properties);
    if (result != CUDA_SUCCESS) return result;
    *handle = machine.next_handle++;
    machine.multicasts.Create(*handle, *properties);
    return CUDA_SUCCESS;
  });
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice device) {
  return Call("cuMulticastAddDevice", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (!IsDevice(machine, device)) return CUDA_ERROR_INVALID_DEVICE;
    return machine.multicasts.AddDevice(handle, device, machine.description);
  });
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle memory,
                            size_t memory_offset, size_t bytes, unsigned long long flags) {
  return Call("cuMulticastBindMem", Needs::kInitialised, [&](Machine& machine, auto&) {
    const auto found = machine.handles.find(memory);
    if (flags != 0 || found == machine.handles.end()) return CUDA_ERROR_INVALID_VALUE;
    return Answer(machine, machine.multicasts.Bind(handle, offset, {found->second.physical, memory_offset, bytes},
                                                   machine.description.multicast_granularity()));
  });
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t offset, CUdeviceptr address, size_t bytes,
                             unsigned long long flags) {
  return Call("cuMulticastBindAddr", Needs::kInitialised, [&](Machine& machine, auto&) {
    const MappedRange* const mapping = machine.addresses.Find(address);
    if (flags != 0 || mapping == nullptr || mapping->linear || mapping->pinned_host || mapping->of_pool) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return Answer(machine,
                  machine.multicasts.Bind(handle, offset, {mapping->physical, address - mapping->address, bytes},
                                          machine.description.multicast_granularity()));
  });
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t bytes) {
  return Call("cuMulticastUnbind", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (!IsDevice(machine, device)) return CUDA_ERROR_INVALID_DEVICE;
    return Answer(
        machine, machine.multicasts.Unbind(handle, device, offset, bytes, machine.description.multicast_granularity()));
  });
}
