#include "tools/cli/bench/raw_growth.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"

namespace commpool::cli {

namespace {

constexpr uint64_t kGranularity = uint64_t{2} << 20;

// The best handle type that the driver does not refuse: a machine without an IMEX channel has no fabric handles.
Result<CUmemAllocationProp> FindProperties(const internal::Driver& driver) {
  const internal::DeviceInfo info = COMMPOOL_TRY(internal::DescribeDevice(driver, 0));
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  properties.allocFlags.gpuDirectRDMACapable = info.gpu_direct_rdma ? 1 : 0;
  Status refused(StatusCode::kNotSupported, "the device has no virtual memory management");
  for (const unsigned types : {CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC,
                               +CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, +CU_MEM_HANDLE_TYPE_NONE}) {
    if ((types & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && !info.fabric_handles) continue;
    properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(types);
    refused = internal::PhysicalMemory::Create(driver, kGranularity, properties).status();
    if (refused.ok()) return properties;
  }
  return refused;
}

}  // namespace

Result<RawGrowth> RawGrowth::Prepare(const internal::Driver& driver, const GrowthShape& shape) {
  const CUmemAllocationProp properties = COMMPOOL_TRY(FindProperties(driver));
  RawGrowth growth(driver, shape, properties);
  growth.access_.push_back({properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  for (const int peer : shape.peers) {
    growth.access_.push_back({{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = peer}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  if (growth.in_pages()) {
    growth.range_ = COMMPOOL_TRY(internal::AddressRange::Reserve(driver, shape.bytes, 0));
  }
  return growth;
}

template <typename Call>
auto RawGrowth::Timed(const char* name, Call&& call) {
  if (!times_calls_) return call();
  const auto start = std::chrono::steady_clock::now();
  auto result = call();
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
  microseconds_by_call_[name] += taken.count();
  return result;
}

Status RawGrowth::Open(CUdeviceptr at, uint64_t bytes) {
  const CUresult result =
      Timed("cuMemSetAccess", [&] { return driver_.cuda.cuMemSetAccess(at, bytes, access_.data(), access_.size()); });
  return internal::CheckCuda(driver_, result, {.call = "cuMemSetAccess", .device = 0, .bytes = bytes});
}

Status RawGrowth::Reserve(const Way& way, uint64_t bytes) {
  if (way.addresses == Addresses::kKept && kept_.valid() && kept_.bytes() == bytes) {
    range_ = std::move(kept_);
    return Status();
  }
  range_ = COMMPOOL_TRY(
      Timed("cuMemAddressReserve", [&] { return internal::AddressRange::Reserve(driver_, bytes, kGranularity); }));
  got_last_addresses_ = range_.address() == freed_last_;
  return Status();
}

Status RawGrowth::Make(const Way& way, uint64_t bytes) {
  microseconds_by_call_.clear();
  const uint64_t unit = in_pages() ? shape_.page_bytes : bytes;
  for (uint64_t made = 0; made < bytes; made += unit) {
    internal::PhysicalMemory memory = COMMPOOL_TRY(Timed("cuMemCreate", [&] {
      return internal::PhysicalMemory::Create(driver_, std::min(unit, bytes - made), properties_);
    }));
    memory_.push_back(std::move(memory));
  }
  if (!in_pages()) {
    COMMPOOL_TRY(Reserve(way, bytes));
  }
  CUdeviceptr at = range_.address();
  for (const internal::PhysicalMemory& memory : memory_) {
    internal::Mapping mapping =
        COMMPOOL_TRY(Timed("cuMemMap", [&] { return internal::Mapping::Map(driver_, at, memory); }));
    mappings_.push_back(std::move(mapping));
    at += memory.bytes();
  }
  if (way.access == Access::kOnce) return Open(range_.address(), bytes);
  for (const internal::Mapping& mapping : mappings_) {
    COMMPOOL_TRY(Open(mapping.address(), mapping.bytes()));
  }
  return Status();
}

Status RawGrowth::Undo(const Way& way) {
  while (!mappings_.empty()) {
    COMMPOOL_TRY(mappings_.back().Release());
    COMMPOOL_TRY(memory_.back().Release());
    mappings_.pop_back();
    memory_.pop_back();
  }
  if (in_pages()) return Status();
  if (way.addresses == Addresses::kKept) {
    kept_ = std::move(range_);
    return Status();
  }
  freed_last_ = range_.address();
  return range_.Release();
}

}  // namespace commpool::cli
