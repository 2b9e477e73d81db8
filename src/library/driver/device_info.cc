#include "src/library/driver/device_info.h"

#include <algorithm>
#include <array>

#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"

namespace commpool::internal {

namespace {

// An attribute of the device; `fallback` where the driver does not know it: then it is too old for the feature too.
int Attribute(const Driver& driver, int device, CUdevice_attribute attribute, int fallback = 0) {
  int value = fallback;
  if (driver.cuda.cuDeviceGetAttribute(&value, attribute, device) != CUDA_SUCCESS) return fallback;
  return value;
}

void FillCapabilities(const Driver& driver, DeviceInfo& info) {
  const auto has = [&](CUdevice_attribute attribute) { return Attribute(driver, info.device, attribute) != 0; };
  info.compute_major = Attribute(driver, info.device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  info.compute_minor = Attribute(driver, info.device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  info.host_numa_node = Attribute(driver, info.device, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, -1);
  if (Attribute(driver, info.device, CU_DEVICE_ATTRIBUTE_NUMA_CONFIG) == CU_DEVICE_NUMA_CONFIG_NUMA_NODE) {
    info.own_numa_node = Attribute(driver, info.device, CU_DEVICE_ATTRIBUTE_NUMA_ID, -1);
  }
  info.coherent = has(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
  info.virtual_memory = has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  info.host_numa_memory = has(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  info.file_descriptor_handles = has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  info.fabric_handles = has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
  info.gpu_direct_rdma = has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  info.multicast = has(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED);
}

std::string NoSuchDevice(int device, int count) {
  return "there is no device " + std::to_string(device) + ": this process sees " + std::to_string(count);
}

}  // namespace

Result<int> DeviceCount(const Driver& driver) {
  int count = 0;
  COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuDeviceGetCount(&count), {.call = "cuDeviceGetCount"}));
  return count;
}

std::string PciBusIdOf(const Driver& driver, int device) {
  std::array<char, 128> text{};
  const CUresult known = driver.cuda.cuDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device);
  return known == CUDA_SUCCESS ? text.data() : "";
}

Result<DeviceInfo> DescribeDevice(const Driver& driver, int device) {
  const int count = COMMPOOL_TRY(DeviceCount(driver));
  if (device < 0 || device >= count) return InvalidArgument(NoSuchDevice(device, count));
  DeviceInfo info;
  info.device = device;
  std::array<char, 128> text{};
  COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuDeviceGetName(text.data(), static_cast<int>(text.size()), device),
                         {.call = "cuDeviceGetName", .device = device}));
  info.name = text.data();
  info.pci_bus_id = PciBusIdOf(driver, device);
  size_t total = 0;
  COMMPOOL_TRY(
      CheckCuda(driver, driver.cuda.cuDeviceTotalMem(&total, device), {.call = "cuDeviceTotalMem", .device = device}));
  info.total_bytes = total;
  FillCapabilities(driver, info);
  for (int peer = 0; peer < count; ++peer) {
    int reachable = 0;
    if (peer == device) continue;
    if (driver.cuda.cuDeviceCanAccessPeer(&reachable, device, peer) != CUDA_SUCCESS || reachable == 0) continue;
    info.reachable_peers.push_back(peer);
  }
  return info;
}

Status CheckReachable(const Driver& driver, int device, int peer) {
  const int count = COMMPOOL_TRY(DeviceCount(driver));
  for (const int asked : {device, peer}) {
    if (asked < 0 || asked >= count) return NotSupported(NoSuchDevice(asked, count));
  }
  if (device == peer) return Status();
  int reachable = 0;
  COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuDeviceCanAccessPeer(&reachable, device, peer),
                         {.call = "cuDeviceCanAccessPeer", .device = device}));
  if (reachable != 0) return Status();
  return NotSupported("device ", device, " cannot reach the memory of device ", peer,
                      ": no NVLink or PCIe peer access between them");
}

Result<std::vector<int>> PeersThatReach(const Driver& driver, int device) {
  const int count = COMMPOOL_TRY(DeviceCount(driver));
  std::vector<int> peers;
  for (int peer = 0; peer < count; ++peer) {
    if (peer != device && CheckReachable(driver, peer, device).ok()) peers.push_back(peer);
  }
  return peers;
}

int NearestNode(const DeviceInfo& info) { return std::max(info.host_numa_node, 0); }

int LargestMulticastGroup(const DeviceInfo& info) {
  return info.multicast ? static_cast<int>(info.reachable_peers.size()) + 1 : 0;
}

}  // namespace commpool::internal
