#include "src/library/engine/block_map.h"

#include <sys/mman.h>

namespace commpool::internal::engine {

BlockMap::~BlockMap() {
  for (const auto& [pages, bytes] : mapped_) munmap(pages, bytes);
}

void* BlockMap::MapPages(uint64_t bytes) {
  mapped_.reserve(mapped_.size() + 1);
  void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  mapped_.emplace_back(pages, bytes);
  return pages;
}

BlockMap::Node* BlockMap::NodeOf(Address address) {
  std::atomic<Node*>& place = top_[address >> kTopShift];
  Node* node = place.load(std::memory_order_relaxed);
  if (node != nullptr) return node;
  node = static_cast<Node*>(MapPages(sizeof(Node)));
  place.store(node, std::memory_order_release);
  return node;
}

AtomicWord* BlockMap::MakeLeaf(Address address) {
  if (address % kClassUnit != 0 || address >> kAddressBits != 0) return nullptr;
  MutexLock lock(mutex_);
  Node* const node = NodeOf(address);
  if (node == nullptr) return nullptr;
  std::atomic<Leaf*>& leaf = node->leaves[LeafPlaceOf(address)];
  if (leaf.load(std::memory_order_relaxed) == nullptr) {
    leaf.store(static_cast<Leaf*>(MapPages(sizeof(Leaf))), std::memory_order_release);
  }
  return Find(address);
}

AtomicWord* BlockMap::MakeNode(Address address) {
  if (address >> kAddressBits != 0) return nullptr;
  MutexLock lock(mutex_);
  return NodeOf(address) == nullptr ? nullptr : FindLarge(address);
}

}  // namespace commpool::internal::engine
