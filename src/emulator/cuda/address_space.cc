#include "src/emulator/cuda/address_space.h"

#include <sys/mman.h>

#include <cstdio>
#include <iterator>
#include <utility>

#include "src/library/base/bytes.h"
#include "src/library/base/check.h"

namespace commpool::internal::emulator {

namespace {

// Reserves aligned, inaccessible addresses. Returns null when the system has none left.
char* ReserveHostRange(uint64_t bytes, uint64_t alignment) {
  const std::optional<uint64_t> padded = CheckedAdd(bytes, alignment);
  if (!padded) return nullptr;
  void* mapped = mmap(nullptr, *padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* const start = static_cast<char*>(mapped);
  char* const aligned = reinterpret_cast<char*>(RoundUp(reinterpret_cast<uint64_t>(start), alignment));
  if (aligned != start) munmap(start, static_cast<size_t>(aligned - start));
  char* const end = start + *padded;
  if (aligned + bytes != end) munmap(aligned + bytes, static_cast<size_t>(end - aligned - bytes));
  return aligned;
}

// The range at `wanted`, or null if it is not free.
char* ReserveHostRangeAt(CUdeviceptr wanted, uint64_t bytes, uint64_t alignment) {
  if (wanted == 0 || wanted % alignment != 0) return nullptr;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  void* const mapped = mmap(reinterpret_cast<void*>(wanted), bytes, PROT_NONE, kFlags, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  if (mapped == reinterpret_cast<void*>(wanted)) return static_cast<char*>(mapped);
  munmap(mapped, bytes);  // a kernel before 4.17 takes the address as a hint
  return nullptr;
}

void Hide(void* address, uint64_t bytes) {
  void* hidden = mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  COMMPOOL_CHECK(hidden == address, "a reserved range cannot be hidden again");
}

void Scrap(void* address, uint64_t bytes) {
  void* scrap =
      mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  COMMPOOL_CHECK(scrap == address, "memory under a running operation cannot be replaced");
}

void Show(void* address, uint64_t bytes, const Physical& physical) {
  void* shown = mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, physical.bank->file(),
                     static_cast<off_t>(physical.bank->At(physical.record).offset));
  COMMPOOL_CHECK(shown == address, "emulated memory cannot be mapped: too many mappings (vm.max_map_count)?");
}

}  // namespace

AddressSpace::~AddressSpace() {
  for (const auto& [address, reservation] : reservations_) {
    if (reservation.of_program) continue;
    munmap(reinterpret_cast<void*>(address), reservation.bytes);
    munmap(reservation.shadow, reservation.bytes);
  }
}

AddressSpace::Reservations::const_iterator AddressSpace::Holding(CUdeviceptr address) const {
  auto after = reservations_.upper_bound(address);
  if (after == reservations_.begin()) return reservations_.end();
  --after;
  return address - after->first < after->second.bytes ? after : reservations_.end();
}

CUresult AddressSpace::Reserve(uint64_t bytes, uint64_t alignment, CUdeviceptr* address, CUdeviceptr wanted) {
  char* range = ReserveHostRangeAt(wanted, bytes, alignment);
  if (range == nullptr) range = ReserveHostRange(bytes, alignment);
  if (range == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  char* const shadow = ReserveHostRange(bytes, alignment);
  if (shadow == nullptr) {
    munmap(range, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = reinterpret_cast<CUdeviceptr>(range);
  reservations_.emplace(*address, Reservation{.bytes = bytes, .shadow = shadow});
  return CUDA_SUCCESS;
}

CUresult AddressSpace::Free(CUdeviceptr address, uint64_t bytes) {
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second.bytes != bytes || found->second.of_pool) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto mapped = mappings_.lower_bound(address);
  if (mapped != mappings_.end() && mapped->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;  // still mapped
  munmap(reinterpret_cast<void*>(address), bytes);
  if (!found->second.scrapped) munmap(found->second.shadow, bytes);
  reservations_.erase(found);
  return CUDA_SUCCESS;
}

CUresult AddressSpace::ReserveForPool(uint64_t bytes, uint64_t alignment, CUdeviceptr* address) {
  const CUresult result = Reserve(bytes, alignment, address);
  if (result == CUDA_SUCCESS) reservations_.at(*address).of_pool = true;
  return result;
}

void AddressSpace::FreeOfPool(CUdeviceptr address) {
  Reservation& reservation = reservations_.at(address);
  reservation.of_pool = false;
  COMMPOOL_CHECK(Free(address, reservation.bytes) == CUDA_SUCCESS, "a pool gives up addresses that are still mapped");
}

CUresult AddressSpace::Map(CUdeviceptr address, uint64_t bytes, std::shared_ptr<Physical> physical) {
  const auto reservation = Holding(address);
  if (reservation == reservations_.end() || address + bytes > reservation->first + reservation->second.bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto next = mappings_.lower_bound(address);
  if (next != mappings_.end() && next->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  if (Find(address) != nullptr) return CUDA_ERROR_INVALID_VALUE;
  Show(reservation->second.shadow + (address - reservation->first), bytes, *physical);
  MappedRange mapping;
  mapping.address = address;
  mapping.bytes = bytes;
  mapping.requested = bytes;
  mapping.physical = std::move(physical);
  mapping.buffer_id = next_buffer_id_++;
  mappings_.emplace(address, std::move(mapping));
  return CUDA_SUCCESS;
}

void AddressSpace::Register(CUdeviceptr address, uint64_t bytes, std::shared_ptr<Physical> physical) {
  char* const own = reinterpret_cast<char*>(address);
  reservations_.emplace(address, Reservation{.bytes = bytes, .shadow = own, .of_program = true});
  MappedRange mapping;
  mapping.address = address;
  mapping.bytes = bytes;
  mapping.requested = bytes;
  mapping.physical = std::move(physical);
  mapping.cpu = true;
  mapping.pinned_host = true;
  mapping.registered = true;
  mapping.buffer_id = next_buffer_id_++;
  mappings_.emplace(address, std::move(mapping));
}

void AddressSpace::Unregister(CUdeviceptr address) {
  mappings_.erase(address);
  reservations_.erase(address);
}

void AddressSpace::Unmap(CUdeviceptr address, uint64_t bytes, Leave leave) {
  for (MappedRange* mapping : Touching(address, bytes)) {
    ShowToHost(*mapping, false);
    Reservation& reservation = std::prev(reservations_.upper_bound(mapping->address))->second;
    char* const shadow = HostPointer(mapping->address);
    if (leave == Leave::kScrap) {
      Scrap(shadow, mapping->bytes);
      reservation.scrapped = true;
    } else {
      Hide(shadow, mapping->bytes);
    }
    mappings_.erase(mapping->address);
  }
}

std::vector<MappedRange*> AddressSpace::Covering(CUdeviceptr address, uint64_t bytes) {
  if (bytes == 0 || address + bytes < address) return {};
  // Shadows of neighbouring reservations are not neighbours.
  const auto reservation = Holding(address);
  if (reservation == reservations_.end() || address - reservation->first + bytes > reservation->second.bytes) return {};
  std::vector<MappedRange*> covering;
  CUdeviceptr reached = address;
  while (reached < address + bytes) {
    MappedRange* const mapping = Find(reached);
    if (mapping == nullptr) return {};
    covering.push_back(mapping);
    reached = mapping->address + mapping->bytes;
  }
  return covering;
}

std::vector<MappedRange*> AddressSpace::Touching(CUdeviceptr address, uint64_t bytes) {
  std::vector<MappedRange*> touching;
  if (MappedRange* const before = Find(address); before != nullptr && before->address < address) {
    touching.push_back(before);
  }
  for (auto next = mappings_.lower_bound(address); next != mappings_.end() && next->first - address < bytes; ++next) {
    touching.push_back(&next->second);
  }
  return touching;
}

MappedRange* AddressSpace::Find(CUdeviceptr address) {
  auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return nullptr;
  --after;
  return address - after->first < after->second.bytes ? &after->second : nullptr;
}

std::vector<uint64_t> AddressSpace::NumbersUnder(const std::vector<commpoolEmulatorRange>& reads,
                                                 const std::vector<commpoolEmulatorRange>& writes) {
  std::vector<uint64_t> numbers;
  for (const auto* const ranges : {&reads, &writes}) {
    for (const commpoolEmulatorRange& range : *ranges) {
      for (const MappedRange* mapping : Touching(range.address, range.bytes)) numbers.push_back(mapping->buffer_id);
    }
  }
  return numbers;
}

void AddressSpace::ShowToHost(MappedRange& mapping, bool visible) {
  if (mapping.cpu == visible) return;
  void* const address = reinterpret_cast<void*>(mapping.address);
  if (visible) {
    Show(address, mapping.bytes, *mapping.physical);
  } else {
    Hide(address, mapping.bytes);
  }
  mapping.cpu = visible;
}

char* AddressSpace::HostPointer(CUdeviceptr address) const {
  const auto reservation = Holding(address);
  COMMPOOL_CHECK(reservation != reservations_.end(), "an address outside every reservation is asked for");
  return reservation->second.shadow + (address - reservation->first);
}

std::vector<std::string> AddressSpace::Describe() const {
  std::vector<std::string> lines;
  for (const auto& [address, reservation] : reservations_) {
    if (reservation.of_pool) continue;
    const auto mapped = mappings_.find(address);
    const char* kind = "reserved addresses";
    if (mapped != mappings_.end() && mapped->second.linear) kind = "cuMemAlloc memory";
    if (mapped != mappings_.end() && mapped->second.pinned_host) kind = "pinned host memory";
    if (reservation.of_program) kind = "registered host memory";
    if (mapped != mappings_.end() && mapped->second.openings != 0) kind = "opened memory of another process";
    char line[128];
    std::snprintf(line, sizeof(line), "%s at 0x%llx of %llu bytes", kind, static_cast<unsigned long long>(address),
                  static_cast<unsigned long long>(reservation.bytes));
    lines.push_back(line);
  }
  for (const auto& [address, mapping] : mappings_) {
    if (mapping.linear || mapping.pinned_host || mapping.of_pool) continue;
    char line[128];
    std::snprintf(line, sizeof(line), "mapping at 0x%llx of %llu bytes", static_cast<unsigned long long>(address),
                  static_cast<unsigned long long>(mapping.bytes));
    lines.push_back(line);
  }
  return lines;
}

}  // namespace commpool::internal::emulator
