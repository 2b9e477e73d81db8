#include "tools/cli/bench/raw_growth.h"

#include <algorithm>
#include <utility>

#include "src/driver/diagnosis.h"

namespace commpool::cli {

namespace {

constexpr uint64_t kGranularity = uint64_t{2} << 20;

// The best handle type that the driver does not refuse: a machine without an IMEX channel has no fabric handles.
Result<CUmemAllocationProp> FindProperties(const internal::Driver& driver) {
  Result<internal::DeviceInfo> info = internal::DescribeDevice(driver, 0);
  if (!info.ok()) return info.status();
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  properties.allocFlags.gpuDirectRDMACapable = info->gpu_direct_rdma ? 1 : 0;
  Status refused(StatusCode::kNotSupported, "the device has no virtual memory management");
  for (const unsigned types : {CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC,
                               +CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, +CU_MEM_HANDLE_TYPE_NONE}) {
    if ((types & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && !info->fabric_handles) continue;
    properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(types);
    refused = internal::PhysicalMemory::Create(driver, kGranularity, properties).status();
    if (refused.ok()) return properties;
  }
  return refused;
}

}  // namespace

Result<RawGrowth> RawGrowth::Prepare(const internal::Driver& driver, const GrowthShape& shape) {
  Result<CUmemAllocationProp> properties = FindProperties(driver);
  if (!properties.ok()) return properties.status();
  RawGrowth growth(driver, shape, *properties);
  growth.access_.push_back({properties->location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  for (const int peer : shape.peers) {
    growth.access_.push_back({{CU_MEM_LOCATION_TYPE_DEVICE, {peer}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  if (growth.in_pages()) {
    Result<internal::AddressRange> range = internal::AddressRange::Reserve(driver, shape.bytes, 0);
    if (!range.ok()) return range.status();
    growth.range_ = std::move(*range);
  }
  return growth;
}

Status RawGrowth::Open(CUdeviceptr at, uint64_t bytes) {
  return internal::CheckCuda(driver_, driver_.cuda.cuMemSetAccess(at, bytes, access_.data(), access_.size()),
                             {.call = "cuMemSetAccess", .device = 0, .bytes = bytes});
}

Status RawGrowth::Make(Access access) {
  const uint64_t unit = in_pages() ? shape_.page_bytes : shape_.bytes;
  for (uint64_t made = 0; made < shape_.bytes; made += unit) {
    Result<internal::PhysicalMemory> memory =
        internal::PhysicalMemory::Create(driver_, std::min(unit, shape_.bytes - made), properties_);
    if (!memory.ok()) return memory.status();
    memory_.push_back(std::move(*memory));
  }
  if (!in_pages()) {
    Result<internal::AddressRange> range = internal::AddressRange::Reserve(driver_, shape_.bytes, kGranularity);
    if (!range.ok()) return range.status();
    range_ = std::move(*range);
  }
  CUdeviceptr at = range_.address();
  for (const internal::PhysicalMemory& memory : memory_) {
    Result<internal::Mapping> mapping = internal::Mapping::Map(driver_, at, memory);
    if (!mapping.ok()) return mapping.status();
    mappings_.push_back(std::move(*mapping));
    at += memory.bytes();
  }
  if (access == Access::kOnce) return Open(range_.address(), shape_.bytes);
  for (const internal::Mapping& mapping : mappings_) {
    Status status = Open(mapping.address(), mapping.bytes());
    if (!status.ok()) return status;
  }
  return Status();
}

Status RawGrowth::Undo() {
  while (!mappings_.empty()) {
    Status status = mappings_.back().Release();
    if (status.ok()) status = memory_.back().Release();
    if (!status.ok()) return status;
    mappings_.pop_back();
    memory_.pop_back();
  }
  return in_pages() ? Status() : range_.Release();
}

}  // namespace commpool::cli
