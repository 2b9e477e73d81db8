#include "src/emulator/cuda/physical.h"

#include <unistd.h>

#include <utility>

namespace commpool::internal::emulator {

namespace {

std::shared_ptr<Physical> Own(std::shared_ptr<MemoryBank> bank, uint32_t record,
                              const CUmemAllocationProp& properties) {
  auto physical = std::make_shared<Physical>();
  physical->record = record;
  physical->bytes = bank->At(record).bytes;
  physical->identity = bank->identity() * BankHeader::kRecords + record + 1;
  physical->properties = properties;
  physical->bank = std::move(bank);
  return physical;
}

CUmemLocation LocationOf(const BankLocation& location) {
  CUmemLocation result = {};
  result.type =
      location.kind == BankLocation::Kind::kDevice ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST_NUMA;
  result.id = location.id;
  return result;
}

}  // namespace

CUresult MakePhysical(Machine& machine, uint64_t bytes, const CUmemAllocationProp& properties,
                      std::shared_ptr<Physical>* physical) {
  std::shared_ptr<MemoryBank> bank;
  const CUresult result = machine.BankOf(properties.location, &bank);
  if (result != CUDA_SUCCESS) return result;
  const std::optional<uint32_t> record = bank->Allocate(bytes, properties.requestedHandleTypes);
  if (!record) return CUDA_ERROR_OUT_OF_MEMORY;
  *physical = Own(std::move(bank), *record, properties);
  (*physical)->history = machine.races.HistoryOf((*physical)->identity, RaceChecker::Memory::kFresh);
  return CUDA_SUCCESS;
}

CUresult ImportPhysical(Machine& machine, int descriptor, std::shared_ptr<Physical>* physical) {
  const off_t offset = lseek(descriptor, 0, SEEK_CUR);
  const uint64_t identity = MemoryBank::IdentityOf(descriptor);
  if (offset < 0 || identity == 0) return CUDA_ERROR_UNKNOWN;
  std::shared_ptr<MemoryBank> bank = machine.imported_banks[identity].lock();
  for (const auto* own : {&machine.device_banks, &machine.numa_banks}) {
    for (const std::shared_ptr<MemoryBank>& candidate : *own) {
      if (candidate->identity() == identity) bank = candidate;
    }
  }
  if (bank == nullptr) {
    bank = MemoryBank::Open(descriptor);
    if (bank == nullptr) return CUDA_ERROR_UNKNOWN;
    machine.imported_banks[identity] = bank;
  }
  const std::optional<uint32_t> record = bank->Attach(static_cast<uint64_t>(offset));
  if (!record) return CUDA_ERROR_UNKNOWN;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = LocationOf(machine.LocationOf(*bank));
  properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(bank->At(*record).handle_types);
  *physical = Own(std::move(bank), *record, properties);
  (*physical)->history = machine.races.HistoryOf((*physical)->identity, RaceChecker::Memory::kImported);
  return CUDA_SUCCESS;
}

}  // namespace commpool::internal::emulator
