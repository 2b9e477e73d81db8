#include "src/emulator/cuda/extent_allocator.h"

#include <iterator>

namespace commpool::internal::emulator {

ExtentAllocator::ExtentAllocator(uint64_t start, uint64_t bytes) { Insert(start, bytes); }

std::optional<uint64_t> ExtentAllocator::Allocate(uint64_t bytes) {
  const auto best = free_size_.lower_bound({bytes, 0});
  if (best == free_size_.end()) return std::nullopt;
  const auto [piece_bytes, offset] = *best;
  Erase(free_.find(offset));
  if (piece_bytes > bytes) Insert(offset + bytes, piece_bytes - bytes);
  return offset;
}

void ExtentAllocator::Free(uint64_t offset, uint64_t bytes) {
  const auto after = free_.lower_bound(offset);
  if (after != free_.end() && after->first == offset + bytes) {
    bytes += after->second;
    Erase(after);
  }
  const auto next = free_.lower_bound(offset);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      Erase(before);
    }
  }
  Insert(offset, bytes);
}

void ExtentAllocator::Insert(uint64_t offset, uint64_t bytes) {
  free_.emplace(offset, bytes);
  free_size_.emplace(bytes, offset);
}

void ExtentAllocator::Erase(std::map<uint64_t, uint64_t>::iterator piece) {
  free_size_.erase({piece->second, piece->first});
  free_.erase(piece);
}

}  // namespace commpool::internal::emulator
