// The addresses of what a pool holds. When a pool goes, so does what it held, without a look at what others hold.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace commpool::internal::report {

// A pool is whatever number its user knows it by.
class PoolMembers {
 public:
  void Add(uint64_t pool, uint64_t address) { addresses_[pool].insert(address); }
  void Remove(uint64_t pool, uint64_t address) {
    const auto found = addresses_.find(pool);
    if (found == addresses_.end()) return;
    found->second.erase(address);
    if (found->second.empty()) addresses_.erase(found);
  }
  // All of one pool in their order; it has none any more.
  std::vector<uint64_t> Take(uint64_t pool) {
    const auto found = addresses_.find(pool);
    if (found == addresses_.end()) return {};
    std::vector<uint64_t> taken(found->second.begin(), found->second.end());
    addresses_.erase(found);
    std::sort(taken.begin(), taken.end());
    return taken;
  }

 private:
  std::unordered_map<uint64_t, std::unordered_set<uint64_t>> addresses_;
};

}  // namespace commpool::internal::report
