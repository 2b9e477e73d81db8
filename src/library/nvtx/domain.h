// Domain: what one pool says to a tool that listens to NVTX: its ranges, its heaps and their regions.
//
// Any thread. Where no tool listens each call is one look at a pointer, but for the making of a domain. The tool
// decides by NVTX_INJECTION64_PATH whether it listens, before the first domain is made. It never calls the library.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "src/library/base/mutex.h"

namespace commpool::internal::nvtx {

// Whether a tool takes heaps and regions. The answer never changes.
bool ToolTakesHeaps();

// The names of all domains that live. A tool that looks domains up by name would take two pools of one name for one, so
// each domain has a name of its own. A runtime has one, and it outlives the domains. Any thread.
class DomainNames {
 public:
  using Name = std::set<std::string>::const_iterator;

  // The pool's name, or, where a live domain has that, the first of "NAME #2", "NAME #3", ... that none has.
  Name Take(const std::string& pool);
  void Return(Name name);

 private:
  Mutex mutex_{LockRank::kLeaf};
  std::set<std::string> names_ COMMPOOL_GUARDED_BY(mutex_);
};

// Made with a pool. Whatever ends after the pool, such as a scope's range, shares it.
class Domain {
 public:
  // The tool shows "commpool: POOL"; of pools that have one name it shows the later ones as "commpool: POOL #2" and so
  // on.
  Domain(const std::string& pool, DomainNames& names);
  ~Domain();
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  bool heard() const { return handle_ != nullptr; }

  // A range of this thread: ranges end in the reverse order.
  void Push(std::string_view text) const;
  void Pop() const;
  // A range that another thread may end. Returns its number. REQUIRES for both: heard().
  uint64_t Start(std::string_view text) const;
  void End(uint64_t range) const;

  // Returns the tool's handle; null where it refuses, and then the heap has no regions.
  void* RegisterHeap(uint64_t address, uint64_t bytes) const;
  void UnregisterHeap(void* heap) const;
  void RegisterRegion(void* heap, uint64_t address, uint64_t bytes) const;
  void UnregisterRegion(uint64_t address) const;

 private:
  DomainNames& names_;
  const DomainNames::Name name_;
  void* const handle_;
};

// A range of this thread, as long as the object lives.
class Range {
 public:
  Range(const Domain& domain, std::string_view text) : domain_(domain) { domain_.Push(text); }
  ~Range() { domain_.Pop(); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  const Domain& domain_;
};

// The ranges of what has a handle, such as a scope: another thread may end it, and in any order. A runtime has one. Any
// thread. The tool is called without the lock.
class OpenRanges {
 public:
  void Start(uint64_t handle, const std::shared_ptr<const Domain>& domain, std::string_view text);
  void End(uint64_t handle);

  // Whether there was a range ever. A tool that hears of one thread's first scope has to hear of all.
  bool any() const { return any_.load(std::memory_order_relaxed); }

 private:
  struct Open {
    std::shared_ptr<const Domain> domain;
    uint64_t range = 0;
  };

  std::atomic<bool> any_{false};
  Mutex mutex_{LockRank::kLeaf};
  std::map<uint64_t, Open> open_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal::nvtx
