#include "tools/cli/bench/raw_sleep.h"

#include <utility>

#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"

namespace commpool::cli {

namespace {

CUmemAllocationProp OfDeviceZero() {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

}  // namespace

Result<RawSleep> RawSleep::Make(const internal::Driver& driver, size_t blocks, uint64_t bytes) {
  RawSleep made(driver);
  made.bytes_ = bytes;
  made.blocks_.resize(blocks);
  for (Block& block : made.blocks_) {
    Result<internal::AddressRange> addresses = internal::AddressRange::Reserve(driver, bytes, 0);
    if (!addresses.ok()) return addresses.status();
    block.addresses = std::move(*addresses);
  }
  COMMPOOL_TRY(made.Wake());
  return made;
}

Status RawSleep::WaitForDevice() const {
  return internal::CheckCuda(*driver_, driver_->cuda.cuCtxSynchronize(), {.call = "cuCtxSynchronize"});
}

Status RawSleep::Sleep() {
  Status status = WaitForDevice();
  for (auto block = blocks_.begin(); status.ok() && block != blocks_.end(); ++block) {
    status = block->mapping.Release();
    if (status.ok()) status = block->memory.Release();
  }
  return status;
}

Status RawSleep::Wake() {
  static const CUmemAllocationProp kProperties = OfDeviceZero();
  for (Block& block : blocks_) {
    Result<internal::PhysicalMemory> memory = internal::PhysicalMemory::Create(*driver_, bytes_, kProperties);
    if (!memory.ok()) return memory.status();
    Result<internal::Mapping> mapping = internal::Mapping::Map(*driver_, block.addresses.address(), *memory);
    if (!mapping.ok()) return mapping.status();
    COMMPOOL_TRY(mapping->SetAccess(kProperties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    block.memory = std::move(*memory);
    block.mapping = std::move(*mapping);
  }
  return Status();
}

}  // namespace commpool::cli
