#include "tools/cli/bench/raw_memory.h"

#include <functional>
#include <utility>

#include "src/library/base/try.h"
#include "src/library/driver/device_info.h"
#include "src/library/driver/diagnosis.h"

namespace commpool::cli {

namespace {

using internal::CheckCuda;
using internal::Driver;

std::shared_ptr<void> Ended(void* memory, std::function<void(void*)> end) { return {memory, std::move(end)}; }

Result<std::shared_ptr<void>> MakeLinear(const Driver& driver, uint64_t bytes) {
  CUdeviceptr address = 0;
  COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuMemAlloc(&address, bytes), {.call = "cuMemAlloc", .bytes = bytes}));
  return Ended(reinterpret_cast<void*>(address),
               [&driver](void* memory) { driver.cuda.cuMemFree(reinterpret_cast<CUdeviceptr>(memory)); });
}

Result<std::shared_ptr<void>> MakePinned(const Driver& driver, uint64_t bytes) {
  void* memory = nullptr;
  const CUresult made =
      driver.cuda.cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  COMMPOOL_TRY(CheckCuda(driver, made, {.call = "cuMemHostAlloc", .bytes = bytes}));
  return Ended(memory, [&driver](void* pinned) { driver.cuda.cuMemFreeHost(pinned); });
}

Result<std::shared_ptr<void>> MakeByNccl(const Driver& driver, uint64_t bytes) {
  if (!driver.nccl.available()) return Status(StatusCode::kNotSupported, driver.nccl.why_missing);
  void* memory = nullptr;
  COMMPOOL_TRY(
      internal::CheckNccl(driver, driver.nccl.ncclMemAlloc(&memory, bytes), {.call = "ncclMemAlloc", .bytes = bytes}));
  return Ended(memory, [&driver](void* made) { driver.nccl.ncclMemFree(made); });
}

}  // namespace

const char* RawMemory::CallFor(MemoryKind kind) {
  switch (kind.backing) {
    case Backing::kCuda:
      return "cuMemAlloc";
    case Backing::kNccl:
      return "ncclMemAlloc";
    case Backing::kPinned:
      return "cuMemHostAlloc";
    default:
      return "cuMemCreate";
  }
}

Result<RawMemory> RawMemory::Make(const Driver& driver, MemoryKind kind, int device, uint64_t bytes,
                                  const std::vector<int>& peers) {
  const internal::PrimaryContext context = COMMPOOL_TRY(internal::PrimaryContext::Retain(driver, device));
  const internal::ContextGuard current(driver, context);
  RawMemory made;
  if (kind.backing == Backing::kVmm) {
    COMMPOOL_TRY(made.Create(driver, kind, device, bytes, peers));
    return made;
  }
  made.whole_ = COMMPOOL_TRY(kind.backing == Backing::kCuda   ? MakeLinear(driver, bytes)
                             : kind.backing == Backing::kNccl ? MakeByNccl(driver, bytes)
                                                              : MakePinned(driver, bytes));
  made.address_ = reinterpret_cast<CUdeviceptr>(made.whole_.get());
  return made;
}

Status RawMemory::Create(const Driver& driver, MemoryKind kind, int device, uint64_t bytes,
                         const std::vector<int>& peers) {
  const internal::DeviceInfo info = COMMPOOL_TRY(internal::DescribeDevice(driver, device));
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.allocFlags.gpuDirectRDMACapable = !kind.on_host() && info.gpu_direct_rdma ? 1 : 0;
  std::vector<CUmemLocation> users = {properties.location};
  for (const int peer : peers) users.push_back({.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = peer});
  if (kind.on_host()) {
    properties.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = internal::NearestNode(info)};
    users.push_back(properties.location);
  }
  mapped_.addresses = COMMPOOL_TRY(internal::AddressRange::Reserve(driver, bytes, 0));
  Result<internal::PhysicalMemory> memory = internal::PhysicalMemory::Create(driver, bytes, properties);
  if (!memory.ok()) {
    const bool full = memory.status().code() == StatusCode::kOutOfMemory;
    return full ? memory.status() : Status(StatusCode::kNotSupported, memory.status().message());
  }
  mapped_.memory = std::move(*memory);
  mapped_.mapping = COMMPOOL_TRY(internal::Mapping::Map(driver, mapped_.addresses.address(), mapped_.memory));
  for (const CUmemLocation& user : users) {
    COMMPOOL_TRY(mapped_.mapping.SetAccess(user, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  }
  address_ = mapped_.addresses.address();
  return Status();
}

}  // namespace commpool::cli
