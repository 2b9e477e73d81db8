#include "src/library/backing/node_proof.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "src/library/backing/node_pages.h"

namespace commpool::internal {

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
    return Status(StatusCode::kNotSupported, "memory for host NUMA node " + std::to_string(node_) + " lies on node " +
                                                 std::to_string(answer.node) +
                                                 (of_kernel ? ", says move_pages" : ", says the driver of its handle"));
  }
  const int witness = static_cast<int>(answer.witness);
  int known = weakest_;
  while (known < witness && !weakest_.compare_exchange_weak(known, witness)) continue;
  return Status();
}

std::string NodeProof::Text() const {
  switch (weakest_.load()) {
    case kNothingAdded:
      return "";
    case static_cast<int>(NodeWitness::kKernel):
      return ", node seen by move_pages";
    case static_cast<int>(NodeWitness::kHandle):
      return ", node as its handles say";
    default:
      return ", node not proven";
  }
}

}  // namespace commpool::internal
