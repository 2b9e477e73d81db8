#include "src/library/backing/node_pages.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>

namespace commpool::internal {

namespace {

constexpr int kMostNodes = 1024;  // of any Linux
constexpr int kBitsOfWord = 8 * sizeof(unsigned long);

// Where the kernel tells of no nodes there is node 0 alone.
bool HostHasNode(int node) {
  const std::string nodes = "/sys/devices/system/node";
  if (access(nodes.c_str(), F_OK) != 0) return node == 0;
  return node >= 0 && node < kMostNodes && access((nodes + "/node" + std::to_string(node)).c_str(), F_OK) == 0;
}

}  // namespace

Result<NodePages> NodePages::Make(uint64_t bytes, uint64_t alignment) {
  const std::optional<uint64_t> padded = CheckedAdd(bytes, alignment - kPageBytes);
  HostPages pages = padded ? HostPages::Make(*padded) : HostPages();
  if (pages.valid()) return NodePages(std::move(pages), bytes, alignment);
  return Status(StatusCode::kOutOfMemory, "the process has no addresses for " + FormatBytes(bytes) + " of host memory");
}

Status NodePages::BindTo(int node) {
  if (!HostHasNode(node)) {
    return Status(StatusCode::kInvalidArgument, "there is no host NUMA node " + std::to_string(node));
  }
  std::array<unsigned long, kMostNodes / kBitsOfWord> nodes{};
  nodes[static_cast<size_t>(node / kBitsOfWord)] = 1ul << (node % kBitsOfWord);
  if (syscall(SYS_mbind, address(), bytes_, MPOL_BIND, nodes.data(), kMostNodes + 1, 0) == 0) return Status();
  return Status(StatusCode::kNotSupported, "the kernel binds no memory of this process to NUMA node " +
                                               std::to_string(node) + " (mbind: " + std::strerror(errno) +
                                               "; a container needs CAP_SYS_NICE for it)");
}

}  // namespace commpool::internal
