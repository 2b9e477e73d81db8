#include "src/backing/territory.h"

#include <utility>

#include "src/backing/peer_access.h"
#include "src/backing/segment_size.h"
#include "src/base/check.h"
#include "src/base/log.h"
#include "src/driver/diagnosis.h"

namespace commpool::internal {

Result<std::unique_ptr<Territory>> Territory::Reserve(Backing& backing, uint64_t bytes) {
  PageSource* const source = backing.pages();
  COMMPOOL_CHECK(source != nullptr, "a backing without pages has no territory");
  ContextGuard guard(source->driver(), source->context()->get());
  Result<AddressRange> range = AddressRange::Reserve(source->driver(), bytes, backing.granularity());
  if (!range.ok()) return range.status();
  return std::make_unique<Territory>(*source, backing.placement(), std::move(*range));
}

Territory::Territory(PageSource& source, const Placement& placement, AddressRange range)
    : source_(source),
      driver_(source.driver()),
      context_(source.context()),
      placement_(placement),
      range_(std::move(range)),
      range_address_(range_.address()),
      range_bytes_(range_.bytes()) {}

Territory::~Territory() {
  Status status = Release();
  if (!status.ok()) Log(LogLevel::kWarning, status.message());
}

Status Territory::Map(PhysicalMemory memory, CUdeviceptr at) {
  if (pages_.contains(at)) {
    return Status(StatusCode::kDriverError,
                  "a page that could not be unmapped is still at these addresses of an expandable pool");
  }
  Result<Mapping> mapping = Mapping::Map(driver_, at, memory);
  if (!mapping.ok()) return mapping.status();
  const uint64_t bytes = memory.bytes();
  pages_.emplace(at, Page{bytes, std::move(memory), std::move(*mapping)});
  return Status();
}

Result<PhysicalMemory> Territory::Unmap(CUdeviceptr at) {
  const auto found = pages_.find(at);
  COMMPOOL_CHECK(found != pages_.end(), "a page is unmapped that is not there");
  Status status = found->second.mapping.Release();
  if (!status.ok()) return status;
  PhysicalMemory memory = std::move(found->second.memory);
  pages_.erase(found);
  return memory;
}

Result<ReservedVector<PhysicalMemory>> Territory::UnmapRow(CUdeviceptr at, uint64_t bytes) {
  const auto first = pages_.find(at);
  const auto end = pages_.lower_bound(at + bytes);
  uint64_t covered = 0;
  if (first != pages_.end()) EndOfRow(first, end, &covered);
  COMMPOOL_CHECK(covered == bytes, "a row of pages is unmapped that is not there");
  Status status = CheckCuda(driver_, driver_.cuda.cuMemUnmap(at, bytes),
                            {.call = "cuMemUnmap", .device = placement_.device, .bytes = bytes});
  if (!status.ok()) return status;
  ReservedVector<PhysicalMemory> row;
  for (auto page = first; page != end; ++page) {
    page->second.mapping.Abandon();
    row.push_back(std::move(page->second.memory));
  }
  pages_.erase(first, end);
  return row;
}

Status Territory::Drop(CUdeviceptr at, uint64_t bytes) {
  Status first;
  for (auto page = pages_.lower_bound(at); page != pages_.end() && page->first < at + bytes;) {
    const CUdeviceptr address = (page++)->first;
    Result<PhysicalMemory> memory = Unmap(address);
    Status status = memory.ok() ? memory->Release() : memory.status();
    if (first.ok()) first = status;
  }
  return first;
}

Status Territory::Open(CUdeviceptr at, uint64_t bytes) {
  ReservedVector<int> devices(peers_.begin(), peers_.end());
  devices.insert(devices.begin(), placement_.device);
  return SetAccess(driver_, at, bytes, devices, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

Status Territory::ChangeAccess(std::span<const int> devices, CUmemAccess_flags flags) {
  ContextGuard guard(driver_, context_->get());
  for (auto page = pages_.begin(); page != pages_.end();) {
    const CUdeviceptr begin = page->first;
    CUdeviceptr end = begin;
    for (; page != pages_.end() && page->first == end; ++page) end += page->second.mapping.bytes();
    Status status = SetAccess(driver_, begin, end - begin, devices, flags);
    if (!status.ok()) return status;
  }
  return Status();
}

Status Territory::Grant(std::span<const int> peers) {
  const ReservedVector<int> others = OthersThan(placement_, peers);
  Status status = CheckReach(driver_, placement_, others);
  if (status.ok()) status = ChangeAccess(others, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  if (status.ok()) peers_.insert(others.begin(), others.end());
  return status;
}

Status Territory::Revoke(int peer) {
  if (peer == placement_.device) {
    return Status(StatusCode::kInvalidArgument,
                  "the access of the pool's own device " + std::to_string(peer) + " cannot be taken back");
  }
  Status status = ChangeAccess(std::span<const int>(&peer, 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  if (status.ok()) peers_.erase(peer);
  return status;
}

Territory::Pages::iterator Territory::EndOfRow(Pages::iterator first, Pages::iterator last, uint64_t* bytes) {
  *bytes = 0;
  auto page = first;
  for (; page != last && page->first == first->first + *bytes; ++page) {
    if (page->second.mapping.valid() != first->second.mapping.valid()) break;
    *bytes += page->second.bytes;
  }
  return page;
}

// One call for each row of pages: the driver takes any number of whole mappings.
Status Territory::UnmapAll() {
  ContextGuard guard(driver_, context_->get());
  uint64_t bytes = 0;
  for (auto first = pages_.begin(), end = first; first != pages_.end(); first = end) {
    end = EndOfRow(first, pages_.end(), &bytes);
    if (!first->second.mapping.valid()) continue;
    Status status = CheckCuda(driver_, driver_.cuda.cuMemUnmap(first->first, bytes),
                              {.call = "cuMemUnmap", .device = placement_.device, .bytes = bytes});
    if (!status.ok()) {
      static_cast<void>(MapAll(peers_));
      return status;
    }
    for (auto page = first; page != end; ++page) page->second.mapping.Abandon();
  }
  return Status();
}

void Territory::ReleaseUnmapped() {
  for (auto& [at, page] : pages_) {
    if (!page.mapping.valid()) page.memory = PhysicalMemory();
  }
}

Status Territory::MapPages(Pages::iterator first, Pages::iterator last) {
  for (auto page = first; page != last; ++page) {
    if (page->second.mapping.valid()) continue;
    Result<Mapping> mapping = Mapping::Map(driver_, page->first, page->second.memory);
    if (!mapping.ok()) return mapping.status();
    page->second.mapping = std::move(*mapping);
  }
  uint64_t bytes = 0;
  for (auto row = first, end = row; row != last; row = end) {
    end = EndOfRow(row, last, &bytes);
    Status status = Open(row->first, bytes);
    if (!status.ok()) return status;
  }
  return Status();
}

Status Territory::MapAll(const ReservedSet<int>&) {
  ContextGuard guard(driver_, context_->get());
  Status status = MapPages(pages_.begin(), pages_.end());
  if (status.ok()) return status;
  for (auto& [at, page] : pages_) static_cast<void>(page.mapping.Release());
  return status;
}

Result<CUdeviceptr> Territory::WakeFrom(CUdeviceptr from, uint64_t at_least, PageSource& source,
                                        const ReservedSet<int>&) {
  const auto first = pages_.lower_bound(from);
  auto page = first;
  for (uint64_t bytes = 0; page != pages_.end() && bytes < at_least; bytes += page->second.bytes, ++page) {
    if (page->second.memory.valid()) continue;
    Result<PhysicalMemory> memory = source.MakePage(page->second.bytes);
    if (!memory.ok()) return memory.status();
    page->second.memory = std::move(*memory);
  }
  Status status = MapPages(first, page);
  if (!status.ok()) return status;
  return page == pages_.end() ? range_address_ + range_bytes_ : page->first;
}

uint64_t Territory::missing_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [at, page] : pages_) bytes += page.memory.valid() ? 0 : page.bytes;
  return bytes;
}

Status Territory::Release() {
  if (!range_.valid()) return Status();
  ContextGuard guard(driver_, context_->get());
  for (auto& [at, page] : pages_) {
    Status status = page.mapping.Release();
    if (!status.ok()) {
      Abandon();  // still mapped: nothing else can be given back
      return status;
    }
    status = page.memory.Release();
    if (!status.ok()) return status;
  }
  pages_.clear();
  return range_.Release();
}

void Territory::Abandon() {
  for (auto& [at, page] : pages_) {
    page.mapping.Abandon();
    page.memory.Abandon();
  }
  range_.Abandon();
  context_->Abandon();
}

}  // namespace commpool::internal
