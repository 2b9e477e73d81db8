// Heaps: the segments of pools over cudaMalloc as heaps of a tool, and their blocks as regions.
//
// Any thread. The tool is called under the lock, so that it hears everything in one order.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "src/library/base/mutex.h"
#include "src/library/nvtx/domain.h"

namespace commpool::internal::nvtx {

// A runtime has one. Where no tool takes heaps, nobody need call it.
class Heaps {
 public:
  // Whether a tool takes heaps. Never changes.
  bool taken() const { return taken_; }

  // A segment. Blocks elsewhere, or in one that the tool refuses, are told in vain.
  void Made(const std::shared_ptr<const Domain>& domain, uint64_t address, uint64_t bytes);
  // With the regions that are left in it.
  void Gone(uint64_t address);

  // A block, of as many bytes as the program asked for. What it shares with a region is memory of a graph, whose
  // kernels may run again: then the region covers both, until its heap goes.
  void Served(uint64_t address, uint64_t bytes);
  // Nothing happens where the block is none any more: a free may be told twice.
  void Freed(uint64_t address);

 private:
  struct Region {
    uint64_t bytes = 0;
    bool merged = false;  // of several blocks: no single free ends it
  };
  using Regions = std::map<uint64_t, Region>;
  struct Heap {
    std::shared_ptr<const Domain> domain;
    uint64_t bytes = 0;
    void* handle = nullptr;
    Regions regions = {};
  };

  // Null outside of all heaps.
  Heap* Find(uint64_t address) COMMPOOL_REQUIRES(mutex_);

  const bool taken_ = ToolTakesHeaps();
  Mutex mutex_{LockRank::kLeaf};
  std::map<uint64_t, Heap> heaps_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal::nvtx
