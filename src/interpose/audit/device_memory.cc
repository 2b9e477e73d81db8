#include "src/interpose/audit/device_memory.h"

#include <dlfcn.h>

#include <array>
#include <string>

#include "src/interpose/audit/real_driver.h"
#include "src/interpose/preload/symbols.h"

namespace commpool::audit {

namespace {

// As nvml.h declares them; no package that the build uses has that header.
using NvmlDevice = struct Device_st*;
struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
constexpr int kSuccess = 0;

// NVML, which knows a device's memory before there is a context. Opened at run time.
struct ManagementLibrary {
  int (*initialise)() = nullptr;
  int (*find)(const char*, NvmlDevice*) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;

  static ManagementLibrary Open() {
    ManagementLibrary library;
    void* const handle = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
    if (handle == nullptr) return library;
    const auto look = [handle](const char* name) { return preload::SystemDlsym(handle, name); };
    library.initialise = reinterpret_cast<decltype(initialise)>(look("nvmlInit_v2"));
    library.find = reinterpret_cast<decltype(find)>(look("nvmlDeviceGetHandleByPciBusId_v2"));
    library.memory = reinterpret_cast<decltype(memory)>(look("nvmlDeviceGetMemoryInfo"));
    const bool whole = library.initialise != nullptr && library.find != nullptr && library.memory != nullptr;
    return whole && library.initialise() == kSuccess ? library : ManagementLibrary();
  }
};

// Free memory of the device at an address of the bus, "0000:3b:00.0"; nothing where NVML is missing or does not tell.
std::optional<int64_t> FreeBytesByBus(const std::string& address) {
  static const ManagementLibrary library = ManagementLibrary::Open();
  NvmlDevice device = nullptr;
  NvmlMemory memory = {};
  if (library.find == nullptr || library.find(address.c_str(), &device) != kSuccess) return std::nullopt;
  if (library.memory(device, &memory) != kSuccess) return std::nullopt;
  return static_cast<int64_t>(memory.free);
}

std::optional<int64_t> FreeWithoutContext(int device) {
  const RealDriver& driver = RealDriver::Get();
  std::array<char, 32> address = {};
  if (driver.cuDeviceGetPCIBusId == nullptr) return std::nullopt;
  if (driver.cuDeviceGetPCIBusId(address.data(), address.size(), device) != CUDA_SUCCESS) return std::nullopt;
  return FreeBytesByBus(address.data());
}

std::optional<int64_t> FreeInContext(CUcontext context) {
  const RealDriver& driver = RealDriver::Get();
  const WithContext current(driver, context);
  size_t free = 0;
  size_t total = 0;
  if (driver.cuMemGetInfo == nullptr || driver.cuMemGetInfo(&free, &total) != CUDA_SUCCESS) return std::nullopt;
  return static_cast<int64_t>(free);
}

}  // namespace

void DeviceMemory::NoteBefore(int device) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (devices_.contains(device)) return;
  }
  const std::optional<int64_t> free = FreeWithoutContext(device);
  const std::lock_guard<std::mutex> lock(mutex_);
  devices_.try_emplace(device, Device{nullptr, free, free.has_value()});
}

void DeviceMemory::NoteContext(int device, CUcontext context) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Device& known = devices_[device];
    known.context = context;
    if (known.free_at_start) return;
  }
  const std::optional<int64_t> free = FreeInContext(context);
  const std::lock_guard<std::mutex> lock(mutex_);
  Device& known = devices_[device];
  if (!known.free_at_start) known.free_at_start = free;
}

void DeviceMemory::ForgetContext(int device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  devices_[device].context = nullptr;
}

CUcontext DeviceMemory::ContextOf(int device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = devices_.find(device);
  return known == devices_.end() ? nullptr : known->second.context;
}

std::optional<int64_t> DeviceMemory::FreeBytes(int device) {
  CUcontext const context = ContextOf(device);
  return context == nullptr ? FreeWithoutContext(device) : FreeInContext(context);
}

std::optional<int64_t> DeviceMemory::UsedSinceStart(int device) {
  const std::optional<int64_t> now = FreeBytes(device);
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::optional<int64_t>& start = devices_[device].free_at_start;
  if (!now || !start) return std::nullopt;
  return *start - *now;
}

bool DeviceMemory::StartedBeforeContext(int device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return devices_[device].started_before_context;
}

void DeviceMemory::NotePool(int device, CUmemoryPool pool) {
  const std::lock_guard<std::mutex> lock(mutex_);
  pools_[pool] = device;
}

void DeviceMemory::ForgetPool(CUmemoryPool pool) {
  const std::lock_guard<std::mutex> lock(mutex_);
  pools_.erase(pool);
}

int64_t DeviceMemory::PoolBytes(int device) {
  std::vector<CUmemoryPool> pools;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [pool, place] : pools_) {
      if (place == device) pools.push_back(pool);
    }
  }
  const RealDriver& driver = RealDriver::Get();
  int64_t sum = 0;
  for (const CUmemoryPool pool : pools) {
    cuuint64_t reserved = 0;
    if (driver.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) == CUDA_SUCCESS) {
      sum += static_cast<int64_t>(reserved);
    }
  }
  return sum;
}

int64_t DeviceMemory::GraphBytes(int device) {
  const RealDriver& driver = RealDriver::Get();
  cuuint64_t reserved = 0;
  if (driver.cuDeviceGetGraphMemAttribute == nullptr || ContextOf(device) == nullptr) return 0;
  const CUresult result =
      driver.cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved);
  return result == CUDA_SUCCESS ? static_cast<int64_t>(reserved) : 0;
}

std::vector<int> DeviceMemory::Devices() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<int> devices;
  for (const auto& [device, known] : devices_) devices.push_back(device);
  return devices;
}

}  // namespace commpool::audit
