#include "src/library/engine/block_map.h"

#include <sys/mman.h>

namespace commpool::internal::engine {

BlockMap::~BlockMap() {
  for (const auto& [pages, bytes] : mapped_) munmap(pages, bytes);
}

template <typename Pages>
Pages* BlockMap::MadeAt(std::atomic<Pages*>& place) {
  if (Pages* const made = place.load(std::memory_order_relaxed)) return made;
  mapped_.reserve(mapped_.size() + 1);
  void* const pages =
      mmap(nullptr, sizeof(Pages), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  mapped_.emplace_back(pages, sizeof(Pages));
  place.store(static_cast<Pages*>(pages), std::memory_order_release);
  return place.load(std::memory_order_relaxed);
}

AtomicWord* BlockMap::MakeLeaf(Address address) {
  if (address % kClassUnit != 0 || address >> kAddressBits != 0) return nullptr;
  MutexLock lock(mutex_);
  Node* const node = MadeAt(top_[address >> kTopShift]);
  return node != nullptr && MadeAt(node->leaves[LeafPlaceOf(address)]) != nullptr ? Find(address) : nullptr;
}

AtomicWord* BlockMap::MakeNode(Address address) {
  if (address >> kAddressBits != 0) return nullptr;
  MutexLock lock(mutex_);
  return MadeAt(top_[address >> kTopShift]) != nullptr ? FindLarge(address) : nullptr;
}

}  // namespace commpool::internal::engine
