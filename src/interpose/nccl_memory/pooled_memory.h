// Memory for ncclMemAlloc from commpool's pools. A program makes a window of a whole allocation, so each one is a whole
// segment: there is a pool for each size, whose segments all have that size, and are kept whole once they are free. Any
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "commpool/commpool.h"

namespace commpool::run {

// Whose memory ncclMemAlloc gives.
enum class NcclMemory { kOwn, kPools };

struct Settings {
  bool asked = false;  // the variable is set at all
  NcclMemory nccl_memory = NcclMemory::kOwn;
  commpool_backing backing = {};  // the first is the usual one
  bool all_peers = false;
  std::vector<int> peers;  // devices that may access the memory
  int started_by = 0;      // the process that `commpool run` became

  static const Settings& Get();  // of this process
  // COMMPOOL_RUN, "KEY=VALUE,..."; null: the variable is not set.
  static Settings FromText(const char* text);
};

// The size of the segment for a request: whole granules, and no less than what a pool makes a segment of its own for.
uint64_t SegmentBytes(uint64_t bytes);

// REQUIRES: commpool's library is there (pool_library.h).
class PooledMemory {
 public:
  explicit PooledMemory(Settings settings) : settings_(std::move(settings)) {}

  // The status is that of the pool's call; `devices` is how many there are, for all peers.
  commpool_status Allocate(int device, int devices, uint64_t bytes, void** pointer);
  // NOT_FOUND for memory that no pool has or had; INVALID_ARGUMENT where no allocation begins.
  commpool_status Free(void* pointer);

  uint64_t calls() const;
  // A line for each pool.
  std::string Statistics() const;

 private:
  using Key = std::pair<int, uint64_t>;  // device, bytes of a segment

  commpool_pool FindPool(const Key& key) const;
  commpool_status PoolOf(const Key& key, int devices, commpool_pool* pool);
  bool WasServed(const void* pointer) const;  // REQUIRES: the lock is held

  const Settings settings_;
  mutable std::mutex mutex_;  // of what is below; no pool is called under it
  std::map<Key, commpool_pool> pools_;
  std::set<void*> live_;
  std::map<const char*, const char*> served_;  // where what was ever served begins and ends
  uint64_t calls_ = 0;
};

}  // namespace commpool::run
