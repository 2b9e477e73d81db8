#include "src/library/backing/node_pages.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "src/library/base/failure.h"

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
  return OutOfMemory("the process has no addresses for ", FormatBytes(bytes), " of host memory");
}

Status NodePages::BindTo(int node) {
  if (!HostHasNode(node)) return InvalidArgument("there is no host NUMA node ", node);
  std::array<unsigned long, kMostNodes / kBitsOfWord> nodes{};
  nodes[static_cast<size_t>(node / kBitsOfWord)] = 1ul << (node % kBitsOfWord);
  if (syscall(SYS_mbind, address(), bytes_, MPOL_BIND, nodes.data(), kMostNodes + 1, 0) == 0) return Status();
  return NotSupported("the kernel binds no memory of this process to NUMA node ", node,
                      " (mbind: ", std::strerror(errno), "; a container needs CAP_SYS_NICE for it)");
}

NodeAnswer AskKernel(const Driver& driver, const void* address, uint64_t bytes, int expected) {
  if (driver.kind != DriverChoice::kCuda) return {};
  const uint64_t pages = std::max<uint64_t>(bytes / NodePages::kPageBytes, 1);
  const uint64_t asked = std::min(pages, kMostPagesAsked);
  std::array<const void*, kMostPagesAsked> places{};
  std::array<int, kMostPagesAsked> nodes{};  // a negative error where the kernel does not know the page
  for (uint64_t index = 0; index < asked; ++index) {
    const uint64_t page = asked == 1 ? 0 : index * (pages - 1) / (asked - 1);
    places[index] = static_cast<const char*>(address) + page * NodePages::kPageBytes;
  }
  if (syscall(SYS_move_pages, 0, asked, places.data(), nullptr, nodes.data(), 0) < 0) return {};
  const auto end = nodes.begin() + static_cast<ptrdiff_t>(asked);
  const auto elsewhere = std::find_if(nodes.begin(), end, [&](int node) { return node >= 0 && node != expected; });
  if (elsewhere != end) return {NodeWitness::kKernel, *elsewhere};
  const bool all_known = std::all_of(nodes.begin(), end, [](int node) { return node >= 0; });
  return all_known ? NodeAnswer{NodeWitness::kKernel, expected} : NodeAnswer{};
}

NodeAnswer AskHandle(const Driver& driver, const PhysicalMemory& memory) {
  CUmemAllocationProp properties = {};
  const CUresult result = driver.cuda.cuMemGetAllocationPropertiesFromHandle(&properties, memory.get());
  if (result != CUDA_SUCCESS || properties.location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA) return {};
  return {NodeWitness::kHandle, properties.location.id};
}

Status NodeProof::Add(const NodeAnswer& answer) {
  const bool of_kernel = answer.witness == NodeWitness::kKernel;
  if (answer.witness != NodeWitness::kNobody && answer.node != node_) {
    return NotSupported("memory for host NUMA node ", node_, " lies on node ", answer.node,
                        of_kernel ? ", says move_pages" : ", says the driver of its handle");
  }
  const int witness = static_cast<int>(answer.witness);
  int known = weakest_;
  while (known < witness && !weakest_.compare_exchange_weak(known, witness)) continue;
  return Status();
}

std::string NodeProof::Text() const {
  // Of kNothingAdded, then in the order of NodeWitness.
  constexpr const char* kTexts[] = {"", ", node seen by move_pages", ", node as its handles say", ", node not proven"};
  return kTexts[weakest_ - kNothingAdded];
}

}  // namespace commpool::internal
