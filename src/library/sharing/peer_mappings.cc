#include <utility>

#include "src/library/base/try.h"
#include "src/library/sharing/mapped_memory.h"

namespace commpool::internal {

PeerMappings::~PeerMappings() {
  MutexLock lock(mutex_);
  for (auto& [number, row] : rows_) {
    for (Mapping& mapping : row.ranks) mapping.Abandon();
    row.range.Abandon();
  }
}

PeerMappings::Row* PeerMappings::FindRow(uint64_t segment) {
  MutexLock lock(mutex_);
  const auto found = rows_.find(segment);
  return found == rows_.end() ? nullptr : &found->second;
}

// What fails to be unmapped stays in the row: the addresses must not serve others.
Status PeerMappings::UnmapRow(Row& row) {
  {
    MutexLock lock(mutex_);
    row.mapped = false;
  }
  Status unmapped = FirstFailureOf(row.ranks, [](Mapping& mapping) { return mapping.Release(); });
  if (unmapped.ok()) row.ranks.clear();
  return unmapped;
}

Result<std::vector<Mapping>> PeerMappings::MapAll(const Row& row, const std::vector<PhysicalMemory>& ranks) const {
  std::vector<Mapping> mapped;
  CUdeviceptr at = row.range.address();
  for (const PhysicalMemory& memory : ranks) {
    Mapping mapping = COMMPOOL_TRY(Mapping::Map(driver_, at, memory));
    COMMPOOL_TRY(
        mapping.SetAccess({.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    mapped.push_back(std::move(mapping));
    at += row.own.bytes;
  }
  return mapped;
}

Status PeerMappings::Map(const SegmentName& own, const std::vector<PhysicalMemory>& ranks) {
  Row fresh{.own = own};
  Row* const known = FindRow(own.number);
  Row& row = known == nullptr ? fresh : *known;
  if (known == nullptr) row.range = COMMPOOL_TRY(AddressRange::Reserve(driver_, own.bytes * ranks.size(), 0));
  COMMPOOL_TRY(UnmapRow(row));
  row.ranks = COMMPOOL_TRY(MapAll(row, ranks));
  MutexLock lock(mutex_);
  row.mapped = true;
  if (known == nullptr) rows_.emplace(own.number, std::move(fresh));
  return Status();
}

Status PeerMappings::Unmap(uint64_t segment) {
  Row* const row = FindRow(segment);
  return row == nullptr ? Status() : UnmapRow(*row);
}

Status PeerMappings::UnmapAll() {
  std::vector<uint64_t> segments;
  {
    MutexLock lock(mutex_);
    for (const auto& [number, row] : rows_) segments.push_back(number);
  }
  return FirstFailureOf(segments, [this](uint64_t segment) { return Unmap(segment); });
}

Status PeerMappings::Forget(uint64_t segment) {
  Row* const row = FindRow(segment);
  if (row == nullptr) return Status();
  COMMPOOL_TRY(UnmapRow(*row));
  Status freed = row->range.Release();
  MutexLock lock(mutex_);
  rows_.erase(segment);
  return freed;
}

std::vector<engine::SegmentRange> PeerMappings::Reserved() const {
  std::vector<engine::SegmentRange> all;
  MutexLock lock(mutex_);
  for (const auto& [number, row] : rows_) all.push_back({row.range.address(), row.range.bytes()});
  return all;
}

bool PeerMappings::IsMapped(uint64_t segment) const {
  MutexLock lock(mutex_);
  const auto found = rows_.find(segment);
  return found != rows_.end() && found->second.mapped;
}

std::optional<PeerPlaces> PeerMappings::Find(CUdeviceptr own) const {
  MutexLock lock(mutex_);
  for (const auto& [number, row] : rows_) {
    const SegmentName& name = row.own;
    if (!row.mapped || !name.Holds(own)) continue;
    return PeerPlaces{row.range.address() + (own - name.address), name.bytes,
                      static_cast<int>(row.range.bytes() / name.bytes)};
  }
  return std::nullopt;
}

}  // namespace commpool::internal
