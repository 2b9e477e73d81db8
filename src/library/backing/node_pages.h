// Pages of the host at aligned addresses, which the kernel may be told to take from one NUMA node.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "commpool/status.h"
#include "src/library/base/bytes.h"
#include "src/library/base/kept_file.h"
#include "src/library/driver/handles.h"

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

// Whether memory of the host lies on the NUMA node that a pool names, and who says so: to have asked for a node is no
// proof. Where memory lies elsewhere that is an error, and so a step down the ladder of host memory.
//
// Who knows the node of memory, the best witness first.
enum class NodeWitness {
  kKernel,  // of pages that the process maps (move_pages, which moves nothing here)
  kHandle,  // what the driver says of the handle
  kNobody,
};

struct NodeAnswer {
  NodeWitness witness = NodeWitness::kNobody;
  int node = -1;
};

// At most this many pages are asked for, from the first to the last: a segment may have millions.
inline constexpr uint64_t kMostPagesAsked = 64;

// The node of the pages, or one other than `expected` where not all lie there. kNobody where the kernel does not know
// each of them: pages that nobody touched, some drivers' own mappings, and the emulator, whose nodes are not the
// host's.
NodeAnswer AskKernel(const Driver& driver, const void* address, uint64_t bytes, int expected);
NodeAnswer AskHandle(const Driver& driver, const PhysicalMemory& memory);

// What is known of all memory that a backing makes on its node. Any thread.
class NodeProof {
 public:
  explicit NodeProof(int node) : node_(node) {}

  // Each piece of memory as it was made. kNotSupported where it lies elsewhere: it cannot be had on that node.
  Status Add(const NodeAnswer& answer);
  // For people, of the memory that is known least: "node seen by move_pages". Empty before the first Add.
  std::string Text() const;

 private:
  static constexpr int kNothingAdded = -1;

  const int node_;
  std::atomic<int> weakest_{kNothingAdded};  // a NodeWitness
};

}  // namespace commpool::internal
