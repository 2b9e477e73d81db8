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
  const Address first_leaf = range.address >> kLeafShift;
  const Address last_leaf = last >> kLeafShift;
  uint64_t missing = 0;
  for (Address leaf_index = first_leaf; leaf_index <= last_leaf; ++leaf_index) {
    std::atomic<Middle*>& middle = top_[leaf_index >> (kTopShift - kLeafShift)];
    if (middle.load(std::memory_order_relaxed) == nullptr) {
      middle.store(static_cast<Middle*>(MapPages(sizeof(Middle))), std::memory_order_release);
    }
    missing += LeafAt(leaf_index).load(std::memory_order_relaxed) == nullptr ? 1 : 0;
  }
  if (missing == 0) return;
  // The system is asked once for all of them: growth is timed against the driver's calls alone.
  auto* next = static_cast<Leaf*>(MapPages(missing * sizeof(Leaf)));
  for (Address leaf_index = first_leaf; leaf_index <= last_leaf; ++leaf_index) {
    std::atomic<Leaf*>& leaf = LeafAt(leaf_index);
    if (leaf.load(std::memory_order_relaxed) == nullptr) leaf.store(next++, std::memory_order_release);
  }
}

}  // namespace commpool::internal::engine
