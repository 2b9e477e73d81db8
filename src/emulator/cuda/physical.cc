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

// Finds the bank of an exported descriptor, or opens it. Returns null if no emulator made the descriptor.
std::shared_ptr<MemoryBank> BankBehind(Machine& machine, int descriptor) {
  const uint64_t identity = IdentityOf(descriptor);
  for (const auto* own : {&machine.device_banks, &machine.numa_banks}) {
    for (const std::shared_ptr<MemoryBank>& candidate : *own) {
      if (candidate->identity() == identity) return candidate;
    }
  }
  std::weak_ptr<MemoryBank>& imported = machine.imported_banks[identity];
  std::shared_ptr<MemoryBank> bank = imported.lock();
  if (bank == nullptr) imported = bank = MemoryBank::Open(descriptor);
  return bank;
}

// REQUIRES: the bank is attached to the record, for the result to release.
std::shared_ptr<Physical> OwnImported(Machine& machine, const std::shared_ptr<MemoryBank>& bank, uint32_t record) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = LocationOf(machine.LocationOf(*bank));
  // An H200 tells of no handle types, and so exports no import onward.
  std::shared_ptr<Physical> physical = Own(bank, record, properties);
  physical->history = machine.races.HistoryOf(physical->identity, RaceChecker::Memory::kImported);
  return physical;
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
  const off_t record = lseek(descriptor, 0, SEEK_CUR);
  const std::shared_ptr<MemoryBank> bank = record < 0 ? nullptr : BankBehind(machine, descriptor);
  if (bank == nullptr || !bank->Attach(static_cast<uint64_t>(record))) return CUDA_ERROR_UNKNOWN;
  *physical = OwnImported(machine, bank, static_cast<uint32_t>(record));
  return CUDA_SUCCESS;
}

IpcPlace PlaceOf(const Physical& physical) {
  IpcPlace place = IpcPlace::Of(physical.bank->file());
  place.record = physical.record;
  place.serial = physical.bank->At(physical.record).serial.load();
  return place;
}

CUresult ImportPhysical(Machine& machine, const IpcPlace& place, std::shared_ptr<Physical>* physical) {
  if (place.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  const FileDescriptor file = place.Open();
  const std::shared_ptr<MemoryBank> bank = file.valid() ? BankBehind(machine, file.get()) : nullptr;
  if (bank == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (place.serial == 0 || !bank->Attach(place.record, place.serial)) return CUDA_ERROR_INVALID_VALUE;
  *physical = OwnImported(machine, bank, static_cast<uint32_t>(place.record));
  return CUDA_SUCCESS;
}

}  // namespace commpool::internal::emulator
