// Whether memory of the host lies on the NUMA node that a pool names, and who says so: to have asked for a node is no
// proof. Where memory lies elsewhere that is an error, and so a step down the ladder of host memory.
#ifndef COMMPOOL_SRC_LIBRARY_BACKING_NODE_PROOF_H_
#define COMMPOOL_SRC_LIBRARY_BACKING_NODE_PROOF_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "commpool/status.h"
#include "src/library/driver/handles.h"
#include "src/library/driver/tables.h"

namespace commpool::internal {

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

#endif  // COMMPOOL_SRC_LIBRARY_BACKING_NODE_PROOF_H_
