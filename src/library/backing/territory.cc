#include "src/library/backing/territory.h"

#include <string>
#include <utility>

#include "src/library/base/check.h"
#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"

namespace commpool::internal {

namespace {

CUmemAccessDesc AccessFor(const Placement& placement, CUmemAccess_flags flags) {
  return {.location = LocationOf(placement), .flags = flags};
}

}  // namespace

Result<std::unique_ptr<Territory>> Territory::Reserve(const Backing& backing, uint64_t bytes) {
  COMMPOOL_CHECK(backing.row().movement == Movement::kInPages, "a backing without pages has no territory");
  ContextGuard guard(backing.driver(), backing.context()->get());
  AddressRange range = COMMPOOL_TRY(AddressRange::Reserve(backing.driver(), bytes, backing.granularity()));
  return std::make_unique<Territory>(backing, std::move(range));
}

Territory::Territory(const Backing& backing, AddressRange range, std::span<const int> peers,
                     std::shared_ptr<KeptAddresses> kept)
    : Segment(backing, range.address(), range.bytes()),
      kept_(std::move(kept)),
      placement_(backing.placement()),
      flags_of_peers_(backing.grants() == Grants::kRead ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                        : CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
      range_(std::move(range)),
      peers_(peers.begin(), peers.end()) {
  peers_.erase(placement_.device);
}

Territory::~Territory() {
  const std::shared_ptr<KeptAddresses> others = std::exchange(kept_, nullptr);
  ReleaseAndLog();
  if (!pages_.empty()) Abandon();  // the memory is still mapped, so neither it nor the addresses can be released
}

Status Territory::Map(PhysicalMemory memory, CUdeviceptr at) {
  COMMPOOL_TRY(Drop(at, memory.bytes()));  // what could not be unmapped before: the driver is asked again
  Mapping mapping = COMMPOOL_TRY(Mapping::Map(driver(), at, memory));
  const uint64_t bytes = memory.bytes();
  pages_.emplace(at, Page{bytes, std::move(memory), std::move(mapping)});
  return Status();
}

template <typename Step>
Status Territory::ForEachRow(Pages::iterator first, Pages::iterator last, bool (Page::*is_such)() const, Step step) {
  while (first != last) {
    uint64_t bytes = 0;
    auto end = first;
    for (; end != last && end->first == first->first + bytes && (end->second.*is_such)(); ++end) {
      bytes += end->second.bytes;
    }
    if (bytes > 0) COMMPOOL_TRY(step(first, end, bytes));
    first = bytes > 0 ? end : std::next(first);
  }
  return Status();
}

Status Territory::UnmapPages(Pages::iterator first, Pages::iterator last) {
  Status failed;
  static_cast<void>(
      ForEachRow(first, last, &Page::IsMapped, [&](Pages::iterator begin, Pages::iterator end, uint64_t bytes) {
        Status unmapped = CheckCuda(driver(), driver().cuda.cuMemUnmap(begin->first, bytes),
                                    {.call = "cuMemUnmap", .device = placement_.device, .bytes = bytes});
        for (auto page = begin; unmapped.ok() && page != end; ++page) {
          page->second.mapping.Abandon();
          page->second.open = false;
        }
        KeepFirst(failed, std::move(unmapped));
        return Status();
      }));
  return failed;
}

Result<std::vector<PhysicalMemory>> Territory::UnmapRow(CUdeviceptr at, uint64_t bytes) {
  const auto first = pages_.find(at);
  const auto end = pages_.lower_bound(at + bytes);
  COMMPOOL_TRY(UnmapPages(first, end));
  std::vector<PhysicalMemory> row;
  uint64_t covered = 0;
  for (auto page = first; page != end; ++page) {
    covered += page->second.bytes;
    row.push_back(std::move(page->second.memory));
  }
  COMMPOOL_CHECK(covered == bytes, "a row of pages is unmapped that is not there");
  pages_.erase(first, end);
  return row;
}

Status Territory::Drop(CUdeviceptr at, uint64_t bytes) {
  Status first;
  for (auto page = pages_.lower_bound(at); page != pages_.end() && page->first < at + bytes;) {
    Status status = page->second.mapping.Release();
    if (status.ok()) status = page->second.memory.Release();
    KeepFirst(first, std::move(status));
    page = page->second.mapping.valid() ? std::next(page) : pages_.erase(page);
  }
  return first;
}

Status Territory::SetAccess(CUdeviceptr at, uint64_t bytes, const Accesses& accesses) {
  const CUresult result = driver().cuda.cuMemSetAccess(at, bytes, accesses.data(), accesses.size());
  if (result == CUDA_SUCCESS) return Status();
  std::string all = "access for devices";
  for (const CUmemAccessDesc& access : accesses) {
    const CUmemLocation& location = access.location;
    all +=
        (location.type == CU_MEM_LOCATION_TYPE_DEVICE ? " " : " and the CPUs of node ") + std::to_string(location.id);
  }
  return CheckCuda(
      driver(), result,
      {.call = "cuMemSetAccess", .device = accesses[0].location.id, .bytes = bytes, .purpose = all.c_str()});
}

Status Territory::Open(CUdeviceptr at, uint64_t bytes) {
  constexpr CUmemAccess_flags kAll = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  Accesses all = {AccessFor({.device = placement_.device}, kAll)};
  for (const int peer : peers_) all.push_back(AccessFor({.device = peer}, flags_of_peers_));
  if (placement_.kind == Placement::Kind::kHostNuma) all.push_back(AccessFor(placement_, kAll));
  COMMPOOL_TRY(SetAccess(at, bytes, all));
  const auto end = pages_.lower_bound(at + bytes);
  for (auto page = pages_.lower_bound(at); page != end; ++page) page->second.open = true;
  return Status();
}

Status Territory::ChangeAccess(std::span<const int> devices, CUmemAccess_flags flags) {
  Accesses accesses;
  for (const int device : devices) accesses.push_back(AccessFor({.device = device}, flags));
  if (accesses.empty()) return Status();
  return ForEachRow(
      pages_.begin(), pages_.end(), &Page::IsMapped,
      [&](Pages::iterator first, Pages::iterator, uint64_t bytes) { return SetAccess(first->first, bytes, accesses); });
}

Status Territory::GrantPeers(std::span<const int> peers) {
  std::vector<int> joining(peers.begin(), peers.end());
  std::erase_if(joining, [&](int peer) { return peers_.contains(peer); });
  COMMPOOL_TRY(ChangeAccess(joining, flags_of_peers_));
  peers_.insert(joining.begin(), joining.end());
  return Status();
}

Status Territory::RevokePeer(int peer) {
  const std::span<const int> alone(&peer, 1);
  Status revoked = ChangeAccess(alone, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  if (revoked.ok()) {
    peers_.erase(peer);
  } else if (peers_.contains(peer)) {
    static_cast<void>(ChangeAccess(alone, flags_of_peers_));  // some pages may have lost it
  }
  return revoked;
}

Status Territory::UnmapAll() {
  ContextGuard guard(driver(), context().get());
  return UnmapPages(pages_.begin(), pages_.end());
}

void Territory::ReleaseUnmapped() {
  DropHandles();
  for (auto& [at, page] : pages_) {
    if (!page.mapping.valid()) page.memory = PhysicalMemory();
  }
}

Status Territory::MapPages(Pages::iterator first, Pages::iterator last) {
  for (auto page = first; page != last; ++page) {
    if (page->second.mapping.valid()) continue;
    page->second.mapping = COMMPOOL_TRY(Mapping::Map(driver(), page->first, page->second.memory));
  }
  return ForEachRow(first, last, &Page::IsClosed, [this](Pages::iterator begin, Pages::iterator, uint64_t bytes) {
    return Open(begin->first, bytes);
  });
}

Status Territory::MapAll() {
  ContextGuard guard(driver(), context().get());
  return MapPages(pages_.begin(), pages_.end());
}

Result<CUdeviceptr> Territory::WakeFrom(CUdeviceptr from, uint64_t at_least, Backing& backing) {
  const auto first = pages_.lower_bound(from);
  auto page = first;
  for (uint64_t bytes = 0; page != pages_.end() && bytes < at_least; bytes += page->second.bytes, ++page) {
    if (!page->second.memory.valid()) page->second.memory = COMMPOOL_TRY(backing.MakePage(page->second.bytes));
  }
  COMMPOOL_TRY(MapPages(first, page));
  return page == pages_.end() ? address() + bytes() : page->first;
}

uint64_t Territory::missing_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [at, page] : pages_) bytes += page.memory.valid() ? 0 : page.bytes;
  return bytes;
}

Status Territory::ReleaseMemory() {
  Status first = UnmapPages(pages_.begin(), pages_.end());
  if (!first.ok()) {
    LiveOn();
    return first;
  }
  for (auto& [at, page] : pages_) KeepFirst(first, page.memory.Release());
  pages_.clear();
  const bool last = kept_.use_count() <= 1;  // the last segment of the backing keeps no addresses
  KeepFirst(first, last ? range_.Release() : kept_->Keep(std::move(range_)));
  kept_ = nullptr;
  return first;
}

void Territory::Abandon() {
  for (auto& [at, page] : pages_) {
    page.mapping.Abandon();
    page.memory.Abandon();
  }
  range_.Abandon();
  if (kept_ != nullptr) kept_->Abandon();
  kept_ = nullptr;
  Segment::Abandon();
}

}  // namespace commpool::internal
