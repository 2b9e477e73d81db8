#include <utility>

#include "src/library/base/try.h"
#include "src/library/sharing/mapped_memory.h"

namespace commpool::internal {

Result<AddressRange> ImportedSegments::Reserve(const SegmentName& name) const {
  AddressRange range = COMMPOOL_TRY(AddressRange::Reserve(driver_, name.bytes, 0, name.address));
  if (addresses_ == ImportAddresses::kAny || range.address() == name.address) return range;
  return FailedPrecondition("the addresses of the owner's segment, ", engine::Hexadecimal(name.address), " to ",
                            engine::Hexadecimal(name.address + name.bytes),
                            ", are not free in this process: import with "
                            "addresses = ANY, or before this process takes them");
}

Status ImportedSegments::Map(const SegmentName& name, PhysicalMemory memory) {
  Mapped fresh{.name = name};
  const auto known = mapped_.find(name.number);
  Mapped& mapped = known == mapped_.end() ? fresh : known->second;
  if (mapped.mapping.valid()) return Status();
  if (mapped.name.bytes != name.bytes) {
    return RemoteFailure("the owner named another size for a segment than before: ", name.bytes, " bytes");
  }
  if (!mapped.range.valid()) mapped.range = COMMPOOL_TRY(Reserve(name));
  Mapping mapping = COMMPOOL_TRY(Mapping::Map(driver_, mapped.range.address(), memory));
  COMMPOOL_TRY(
      mapping.SetAccess({.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  mapped.name = name;
  mapped.memory = std::move(memory);
  mapped.mapping = std::move(mapping);
  if (known == mapped_.end()) mapped_.emplace(name.number, std::move(fresh));
  return Status();
}

std::optional<CUdeviceptr> ImportedSegments::Find(uint64_t segment, uint64_t address, uint64_t bytes) const {
  const auto found = mapped_.find(segment);
  if (found == mapped_.end() || !found->second.mapping.valid() || !found->second.name.Holds(address)) {
    return std::nullopt;
  }
  const uint64_t offset = address - found->second.name.address;
  if (bytes > found->second.name.bytes - offset) return std::nullopt;
  return found->second.range.address() + offset;
}

std::optional<uint64_t> ImportedSegments::NumberOf(uint64_t address) const {
  for (auto entry = mapped_.rbegin(); entry != mapped_.rend(); ++entry) {
    if (entry->second.name.Holds(address)) return entry->first;
  }
  return std::nullopt;
}

Status ImportedSegments::UnmapAll() {
  return FirstFailureOf(mapped_, [](auto& entry) {
    Status unmapped = entry.second.mapping.Release();
    return unmapped.ok() ? entry.second.memory.Release() : unmapped;
  });
}

std::vector<SegmentName> ImportedSegments::Unmapped() const {
  std::vector<SegmentName> names;
  for (const auto& [number, mapped] : mapped_) {
    if (!mapped.mapping.valid()) names.push_back(mapped.name);
  }
  return names;
}

}  // namespace commpool::internal
