#include "src/emulator/cuda/pool_streams.h"

#include <iterator>
#include <utility>

namespace commpool::internal::emulator {

void PoolStreams::Used(uint64_t stream, CUdeviceptr block, const std::string& pool) {
  Uses& uses = known_[stream];
  uses.pool = pool;
  uses.blocks.insert(block);
}

void PoolStreams::Forget(CUdeviceptr address, uint64_t bytes) {
  for (auto next = known_.begin(); next != known_.end();) {
    std::set<CUdeviceptr>& blocks = next->second.blocks;
    blocks.erase(blocks.lower_bound(address), blocks.lower_bound(address + bytes));
    next = blocks.empty() ? known_.erase(next) : std::next(next);
  }
}

std::string PoolStreams::Destroyed(uint64_t stream) {
  const auto found = known_.find(stream);
  if (found == known_.end()) return "";
  std::string pool = std::move(found->second.pool);
  known_.erase(found);
  return pool;
}

}  // namespace commpool::internal::emulator
