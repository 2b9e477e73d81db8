// The part of a communicator that knows NVLink multicast (NVLS): which memory it could serve, and why not. Every rank
// makes its own multicast object, because processes of the emulator do not share them.
#include <algorithm>
#include <string>
#include <utility>

#include "src/emulator/description.h"
#include "src/emulator/nccl/communicator.h"
#include "src/emulator/nccl/log.h"
#include "src/library/base/bytes.h"

namespace commpool::internal::emulated_nccl {

namespace {

CUmulticastObjectProp PropertiesOf(int devices, size_t bytes) {
  CUmulticastObjectProp properties = {};
  properties.numDevices = static_cast<unsigned>(devices);
  properties.size = bytes;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

struct Granularity {
  size_t address = 1;
  size_t bytes = 1;
};

// NCCL's user guide on buffer registration: address and size must be multiples of the allocation's recommended
// granularity. The size must also be a multiple of the object's minimum (the driver API's documentation of
// cuMulticastBindMem).
Granularity BindingGranularity(int device, int ranks) {
  const CUmulticastObjectProp object = PropertiesOf(ranks, 0);
  CUmemAllocationProp memory = {};
  memory.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  memory.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  Granularity granularity;
  size_t of_object = 1;
  GetDriver().cuMemGetAllocationGranularity(&granularity.address, &memory, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  GetDriver().cuMulticastGetGranularity(&of_object, &object, CU_MULTICAST_GRANULARITY_MINIMUM);
  granularity.bytes = std::max(granularity.address, of_object);
  return granularity;
}

std::string Failed(const char* call, CUresult result) {
  return std::string(call) + " failed with error " + std::to_string(result);
}

}  // namespace

// NCCL 2.28.9, src/transport/nvls.cc, ncclNvlsInit.
std::string EmulatedCommunicator::WhyNoMulticast() const {
  if (IsSwitchedOff("NCCL_NVLS_ENABLE")) return "NCCL_NVLS_ENABLE is 0";
  if (ranks_ <= 2) return "NVLS needs more than 2 GPUs";
  if (!all_direct_) return "not all GPUs reach each other";
  int supported = 0;
  GetDriver().cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device_);
  return supported != 0 ? "" : "device " + std::to_string(device_) + " has no multicast";
}

std::string EmulatedCommunicator::WhyNoMulticast(const commpoolEmulatorMapping& mapping) const {
  if (std::string reason = WhyNoMulticast(); !reason.empty()) return reason;
  // NCCL's user guide: windows of host memory serve only loads and stores of devices.
  if (mapping.location_type != CU_MEM_LOCATION_TYPE_DEVICE) return "host memory";
  if (mapping.physical == 0) return "its memory is not one physical handle";
  if ((mapping.handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
    return "its memory has no handle that can be exported as a file descriptor";
  }
  const Granularity granularity = BindingGranularity(device_, ranks_);
  if (mapping.base % granularity.address != 0) {
    return "its address is no multiple of " + std::to_string(granularity.address) + " bytes";
  }
  if (mapping.bytes % granularity.bytes == 0) return "";
  return "its size is no multiple of " + std::to_string(granularity.bytes) + " bytes";
}

std::string EmulatedCommunicator::WhyNoMulticastOfLocal(const void* buffer, size_t bytes,
                                                        const commpoolEmulatorMapping& mapping) const {
  // For two ranks in one process (NVIDIA/nccl#1377, #1542). 2.28.3 has the variable first.
  constexpr int kFirstWithOneProcess = 22803;
  const char* const asked = NcclVariable("NCCL_SINGLE_PROC_MEM_REG_ENABLE");
  const bool allowed = ClaimedVersion() >= kFirstWithOneProcess && asked != nullptr && std::string(asked) == "1";
  for (const PeerInfo& peer : peers_) {
    const PeerInfo& own = peers_[static_cast<size_t>(rank_)];
    if (peer.rank != rank_ && peer.host == own.host && peer.process == own.process && !allowed) {
      return "ranks " + std::to_string(std::min(rank_, peer.rank)) + " and " +
             std::to_string(std::max(rank_, peer.rank)) + " share a process";
    }
  }
  commpoolEmulatorMapping range = mapping;
  range.base = reinterpret_cast<CUdeviceptr>(buffer);
  range.bytes = bytes;
  return WhyNoMulticast(range);
}

std::string EmulatedCommunicator::MakeMulticast(EmulatedWindow& window) const {
  const DriverFunctions& driver = GetDriver();
  const CUmulticastObjectProp properties = PropertiesOf(ranks_, window.mapping_bytes);
  CUresult result = driver.cuMulticastCreate(&window.multicast, &properties);
  if (result != CUDA_SUCCESS) return Failed("cuMulticastCreate", result);
  const Result<emulator::Description> machine = emulator::Description::OfEnvironment();
  for (const PeerInfo& peer : peers_) {
    result = driver.cuMulticastAddDevice(window.multicast, machine->DeviceOf(peer.device));
    if (result != CUDA_SUCCESS) return Failed("cuMulticastAddDevice", result);
  }
  CUmemGenericAllocationHandle memory = 0;
  result = driver.cuMemRetainAllocationHandle(&memory, reinterpret_cast<void*>(window.mapping));
  if (result != CUDA_SUCCESS) return Failed("cuMemRetainAllocationHandle", result);
  result = driver.cuMulticastBindMem(window.multicast, 0, memory, 0, window.mapping_bytes, 0);
  driver.cuMemRelease(memory);
  return result == CUDA_SUCCESS ? "" : Failed("cuMulticastBindMem", result);
}

void EmulatedCommunicator::BindMulticast(EmulatedWindow& window, std::string why_not) {
  if (why_not.empty()) {
    why_not = MakeMulticast(window);
    if (!why_not.empty() && window.multicast != 0) {
      GetDriver().cuMemRelease(window.multicast);
      window.multicast = 0;
    }
  }
  GetDriver().commpoolEmulatorNoteNvls(window.mapping, window.mapping_bytes, why_not.c_str());
  LogInfo(Subject::kRegistration, "rank %d window %p size %zu %s%s", rank_, reinterpret_cast<void*>(window.buffer),
          window.bytes,
          why_not.empty() ? "is bound for NVLS multicast" : "cannot use NVLS multicast: ", why_not.c_str());
}

void EmulatedCommunicator::UnbindMulticast(const EmulatedWindow& window) const {
  const DriverFunctions& driver = GetDriver();
  driver.commpoolEmulatorNoteNvls(window.mapping, 0, nullptr);
  if (window.multicast == 0) return;
  // NCCL ignores a failure here (NVIDIA/nccl#2117).
  driver.cuMulticastUnbind(window.multicast, device_, 0, window.mapping_bytes);
  driver.cuMemRelease(window.multicast);
}

}  // namespace commpool::internal::emulated_nccl
