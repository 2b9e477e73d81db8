// Pages of the host at aligned addresses, which the kernel may be told to take from one NUMA node.
#ifndef COMMPOOL_SRC_LIBRARY_BACKING_NODE_PAGES_H_
#define COMMPOOL_SRC_LIBRARY_BACKING_NODE_PAGES_H_

#include <cstdint>
#include <utility>

#include "commpool/status.h"
#include "src/library/base/bytes.h"
#include "src/library/base/kept_file.h"

namespace commpool::internal {

// One thread at a time.
class NodePages {
 public:
  static constexpr uint64_t kPageBytes = 4096;

  // No page exists before it is touched. kOutOfMemory where the process has no such addresses. REQUIRES: `bytes` is a
  // multiple of the page, and `alignment` a power of two of at least a page.
  static Result<NodePages> Make(uint64_t bytes, uint64_t alignment);

  // Pages that are touched from now on come from this node and from no other. kInvalidArgument where there is no such
  // node, kNotSupported where the kernel does not let this process choose.
  Status BindTo(int node);
  // The pages stay until the process ends.
  void Abandon() { pages_.Abandon(); }

  void* address() const { return reinterpret_cast<void*>(address_); }
  uint64_t bytes() const { return bytes_; }

 private:
  NodePages(HostPages pages, uint64_t bytes, uint64_t alignment)
      : pages_(std::move(pages)),
        address_(RoundUp(reinterpret_cast<uint64_t>(pages_.data()), alignment)),
        bytes_(bytes) {}

  HostPages pages_;  // and some addresses more, which nobody touches
  uint64_t address_;
  uint64_t bytes_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_BACKING_NODE_PAGES_H_
