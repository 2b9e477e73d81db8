// Domain: what one pool says to a tool that listens to NVTX: its ranges, its heaps and their regions.
//
// Any thread. Where no tool listens each call is one look at a pointer, but for the making of a domain. The tool
// decides by NVTX_INJECTION64_PATH whether it listens, before the first domain is made. It never calls the library.
#ifndef COMMPOOL_SRC_LIBRARY_NVTX_DOMAIN_H_
#define COMMPOOL_SRC_LIBRARY_NVTX_DOMAIN_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "src/library/nvtx/domain_names.h"

namespace commpool::internal::nvtx {

// Whether a tool takes heaps and regions. The answer never changes.
bool ToolTakesHeaps();

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
  // A range that another thread may end. Returns its number.
  uint64_t Start(std::string_view text) const;
  void End(uint64_t range) const;

  // Returns the tool's handle; null where it refuses, and then the heap has no regions.
  void* RegisterHeap(uint64_t address, uint64_t bytes) const;
  void UnregisterHeap(void* heap) const;
  void RegisterRegion(void* heap, uint64_t address, uint64_t bytes) const;
  void UnregisterRegion(uint64_t address) const;

 private:
  void NameMemory(uint64_t address) const;

  const DomainName name_;
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

}  // namespace commpool::internal::nvtx

#endif  // COMMPOOL_SRC_LIBRARY_NVTX_DOMAIN_H_
