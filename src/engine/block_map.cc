#include "src/engine/block_map.h"

#include <sys/mman.h>

#include "src/base/check.h"

namespace commpool::internal::engine {

BlockMap::~BlockMap() {
  for (const auto& [pages, bytes] : mapped_) munmap(pages, bytes);
}

void* BlockMap::MapPages(uint64_t bytes) {
  void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  COMMPOOL_CHECK(pages != MAP_FAILED, "the system has no addresses left for the map of blocks");
  mapped_.emplace_back(pages, bytes);
  return pages;
}

void BlockMap::Cover(const SegmentRange& range) {
  MutexLock lock(mutex_);
  const Address last = range.address + range.bytes - 1;
  if (last >> kAddressBits != 0) return;
  for (Address leaf_index = range.address >> kLeafShift; leaf_index <= last >> kLeafShift; ++leaf_index) {
    std::atomic<Middle*>& middle = top_[leaf_index >> (kTopShift - kLeafShift)];
    if (middle.load(std::memory_order_relaxed) == nullptr) {
      middle.store(static_cast<Middle*>(MapPages(sizeof(Middle))), std::memory_order_release);
    }
    std::atomic<Leaf*>& leaf = (*middle.load(std::memory_order_relaxed))[leaf_index & (kMiddleSize - 1)];
    if (leaf.load(std::memory_order_relaxed) == nullptr) {
      leaf.store(static_cast<Leaf*>(MapPages(sizeof(Leaf))), std::memory_order_release);
    }
  }
}

}  // namespace commpool::internal::engine
