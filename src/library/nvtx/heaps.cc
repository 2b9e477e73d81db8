#include "src/library/nvtx/heaps.h"

#include <algorithm>
#include <iterator>

namespace commpool::internal::nvtx {

void Heaps::Made(const std::shared_ptr<const Domain>& domain, uint64_t address, uint64_t bytes) {
  MutexLock lock(mutex_);
  if (void* const handle = domain->RegisterHeap(address, bytes)) heaps_[address] = {domain, bytes, handle};
}

void Heaps::Gone(uint64_t address) {
  std::map<uint64_t, Heap>::node_type gone;  // its domain may end with it, without the lock
  MutexLock lock(mutex_);
  gone = heaps_.extract(address);
  if (gone.empty()) return;
  const Heap& heap = gone.mapped();
  for (const auto& [start, region] : heap.regions) heap.domain->UnregisterRegion(start);
  heap.domain->UnregisterHeap(heap.handle);
}

void Heaps::Served(uint64_t address, uint64_t bytes) {
  MutexLock lock(mutex_);
  Heap* const heap = Find(address);
  if (heap == nullptr) return;
  uint64_t first = address;
  uint64_t end = address + bytes;
  bool merged = false;
  auto region = heap->regions.upper_bound(address);
  if (region != heap->regions.begin()) {
    const auto before = std::prev(region);
    if (before->first + before->second.bytes > address) region = before;
  }
  while (region != heap->regions.end() && region->first < end) {
    first = std::min(first, region->first);
    end = std::max(end, region->first + region->second.bytes);
    merged = true;
    heap->domain->UnregisterRegion(region->first);
    region = heap->regions.erase(region);
  }
  heap->regions[first] = {end - first, merged};
  heap->domain->RegisterRegion(heap->handle, first, end - first);
}

void Heaps::Freed(uint64_t address) {
  MutexLock lock(mutex_);
  Heap* const heap = Find(address);
  if (heap == nullptr) return;
  const auto region = heap->regions.find(address);
  if (region == heap->regions.end() || region->second.merged) return;
  heap->domain->UnregisterRegion(address);
  heap->regions.erase(region);
}

Heaps::Heap* Heaps::Find(uint64_t address) {
  const auto after = heaps_.upper_bound(address);
  if (after == heaps_.begin()) return nullptr;
  const auto found = std::prev(after);
  return address - found->first < found->second.bytes ? &found->second : nullptr;
}

}  // namespace commpool::internal::nvtx
