// Pages of the host, the node that they lie on, and who says on which: the kernel, the handle, or nobody; and what
// contradicts the node.
#include "src/library/backing/node_pages.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <optional>

#include "tests/backing/backing_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kBytes = 2 * kMiB + NodePages::kPageBytes;

// The node of a page that was touched; nothing where the kernel does not answer.
std::optional<int> NodeOf(void* page) {
  int node = -1;
  const long result = syscall(SYS_move_pages, 0, 1ul, &page, nullptr, &node, 0);
  return result == 0 && node >= 0 ? std::make_optional(node) : std::nullopt;
}

TEST(NodePages, AreAsManyAsAskedForAndAligned) {
  for (const uint64_t alignment : {NodePages::kPageBytes, 2 * kMiB, 64 * kMiB}) {
    const NodePages pages = NodePages::Make(kBytes, alignment).value();
    EXPECT_EQ(reinterpret_cast<uint64_t>(pages.address()) % alignment, 0u);
    EXPECT_EQ(pages.bytes(), kBytes);
    std::memset(pages.address(), 1, kBytes);
  }
}

TEST(NodePages, RunOutInWords) {
  for (const uint64_t bytes : {uint64_t{1} << 60, UINT64_MAX - NodePages::kPageBytes + 1}) {
    ExpectFailure(NodePages::Make(bytes, 2 * kMiB).status(), StatusCode::kOutOfMemory, FormatBytes(bytes));
  }
}

TEST(NodePages, LieOnTheNodeThatTheyAreBoundTo) {
  NodePages pages = NodePages::Make(kBytes, 2 * kMiB).value();
  const Status bound = pages.BindTo(0);
  if (bound.code() == StatusCode::kNotSupported) GTEST_SKIP() << bound.message();
  ASSERT_TRUE(bound.ok()) << bound.message();
  std::memset(pages.address(), 1, kBytes);
  for (uint64_t offset = 0; offset < kBytes; offset += NodePages::kPageBytes) {
    const std::optional<int> node = NodeOf(static_cast<char*>(pages.address()) + offset);
    if (!node) GTEST_SKIP() << "the kernel does not tell the node of a page";
    ASSERT_EQ(*node, 0) << offset;
  }
}

TEST(NodePages, AreNotBoundToANodeThatIsNotThere) {
  NodePages pages = NodePages::Make(kBytes, NodePages::kPageBytes).value();
  for (const int node : {-1, 1023, 1024, 1 << 20}) {
    ExpectFailure(pages.BindTo(node), StatusCode::kInvalidArgument, "no host NUMA node " + std::to_string(node));
  }
}

constexpr int kNoNode = 1023;

class NodeProofs : public BackingTest {
 protected:
  // Pages of the test's own on node 0, all touched; empty where the kernel tells of none.
  static NodePages PagesOnNode0() {
    NodePages pages = NodePages::Make(kBytes, NodePages::kPageBytes).value();
    if (pages.BindTo(0).ok()) std::memset(pages.address(), 1, kBytes);
    return pages;
  }
  // A real driver, to which the emulator stands in.
  Driver RealDriver() const {
    Driver real = driver();
    real.kind = DriverChoice::kCuda;
    return real;
  }
  bool KernelTells() const {
    return AskKernel(RealDriver(), PagesOnNode0().address(), kBytes, 0).witness == NodeWitness::kKernel;
  }
  NodeAnswer Ask(const NodePages& pages, uint64_t bytes, int expected = 0) const {
    return AskKernel(RealDriver(), pages.address(), bytes, expected);
  }
};

#define COMMPOOL_REQUIRE_TELLING_KERNEL() \
  if (!KernelTells()) GTEST_SKIP() << "the kernel does not tell the node of a page"

TEST_F(NodeProofs, TheKernelKnowsPagesThatWereTouched) {
  COMMPOOL_REQUIRE_TELLING_KERNEL();
  const NodePages pages = PagesOnNode0();
  for (const uint64_t bytes : {NodePages::kPageBytes, 3 * NodePages::kPageBytes, kBytes}) {
    EXPECT_EQ(Ask(pages, bytes).witness, NodeWitness::kKernel) << bytes;
    EXPECT_EQ(Ask(pages, bytes, kNoNode).node, 0) << "what was expected does not change where they lie";
  }
}

TEST_F(NodeProofs, TheKernelDoesNotKnowPagesThatNobodyTouched) {
  COMMPOOL_REQUIRE_TELLING_KERNEL();
  NodePages pages = NodePages::Make(kBytes, NodePages::kPageBytes).value();
  ASSERT_TRUE(pages.BindTo(0).ok());
  EXPECT_EQ(Ask(pages, kBytes).witness, NodeWitness::kNobody);
  std::memset(pages.address(), 1, kBytes - NodePages::kPageBytes);
  EXPECT_EQ(Ask(pages, kBytes).witness, NodeWitness::kNobody) << "all but the last";
  EXPECT_EQ(Ask(pages, kBytes, kNoNode).node, 0) << "one page elsewhere is enough to contradict";
}

TEST_F(NodeProofs, TheEmulatorsNodesAreNotTheHosts) {
  COMMPOOL_REQUIRE_EMULATOR("it is about its nodes");
  EXPECT_EQ(AskKernel(driver(), PagesOnNode0().address(), kBytes, kNoNode).witness, NodeWitness::kNobody);
}

TEST_F(NodeProofs, AreAsGoodAsThatOfTheMemoryKnownLeast) {
  NodeProof proof(2);
  EXPECT_EQ(proof.Text(), "");
  EXPECT_TRUE(proof.Add({NodeWitness::kKernel, 2}).ok());
  EXPECT_EQ(proof.Text(), ", node seen by move_pages");
  EXPECT_TRUE(proof.Add({NodeWitness::kHandle, 2}).ok());
  EXPECT_TRUE(proof.Add({NodeWitness::kKernel, 2}).ok());
  EXPECT_EQ(proof.Text(), ", node as its handles say");
  EXPECT_TRUE(proof.Add({}).ok());
  EXPECT_EQ(proof.Text(), ", node not proven");
}

TEST_F(NodeProofs, RefuseMemoryThatLiesElsewhere) {
  for (const NodeWitness witness : {NodeWitness::kKernel, NodeWitness::kHandle}) {
    NodeProof proof(2);
    ExpectFailure(proof.Add({witness, 0}), StatusCode::kNotSupported, "for host NUMA node 2 lies on node 0");
    EXPECT_EQ(proof.Text(), "");
  }
}

TEST_F(NodeProofs, StandInTheFactsOfABacking) {
  const std::string what = Make({.kind = BackingKind::kVmm, .placement = OnHost()})->Facts().what;
  std::printf("host memory here: %s\n", what.c_str());
  EXPECT_NE(what.find(", node "), std::string::npos) << what;
}

int node_of_handles = 0;

TEST_F(NodeProofs, OfAHandleThatSaysAnotherNodeAreAStepDown) {
  COMMPOOL_REQUIRE_EMULATOR("its driver is made to say another node");
  Driver lying = driver();
  lying.cuda.cuMemGetAllocationPropertiesFromHandle = [](CUmemAllocationProp* properties,
                                                         CUmemGenericAllocationHandle handle) {
    const CUresult result = SharedDriver()->cuda.cuMemGetAllocationPropertiesFromHandle(properties, handle);
    properties->location.id = node_of_handles;
    return result;
  };
  const BackingRequest on_node_1 = {.kind = BackingKind::kVmm, .placement = OnHost(1)};
  node_of_handles = 0;
  const MemoryFacts facts = MakeBacking(lying, on_node_1).value()->Facts();
  EXPECT_EQ(facts.what, "host NUMA node 1, bound and registered, no handle, node not proven");
  EXPECT_NE(facts.why.find("for host NUMA node 1 lies on node 0"), std::string::npos) << facts.why;

  node_of_handles = 1;
  const std::unique_ptr<Backing> backing = MakeBacking(lying, on_node_1).value();
  node_of_handles = 0;
  EXPECT_EQ(backing->Make({.bytes = 1}).status().code(), StatusCode::kNotSupported) << "a later segment";
  const CurrentContext context;
  EXPECT_EQ(backing->MakePage(backing->granularity()).status().code(), StatusCode::kNotSupported) << "a page";
}

// The driver puts pages into the process's memory before it lets the CPU use them.
Driver WithPages(Driver driver) {
  driver.cuda.cuMemSetAccess = [](CUdeviceptr at, size_t bytes, const CUmemAccessDesc* access, size_t count) {
    const CUresult result = SharedDriver()->cuda.cuMemSetAccess(at, bytes, access, count);
    if (result == CUDA_SUCCESS) std::memset(reinterpret_cast<void*>(at), 0, bytes);
    return result;
  };
  driver.cuda.cuMemHostRegister = [](void* pages, size_t bytes, unsigned flags) {
    std::memset(pages, 0, bytes);
    return SharedDriver()->cuda.cuMemHostRegister(pages, bytes, flags);
  };
  return driver;
}

TEST_F(NodeProofs, AreTheKernelsOnEveryRungWhereItMapsThePages) {
  COMMPOOL_REQUIRE_EMULATOR("it stands in for a real driver");
  COMMPOOL_REQUIRE_TELLING_KERNEL();
  const Driver real = WithPages(RealDriver());
  const BackingRequest request = {.kind = BackingKind::kVmm, .placement = OnHost(0)};
  const std::string handles = MakeBacking(real, request).value()->Facts().what;
  EXPECT_EQ(handles, "host NUMA node 0, file descriptor handles, node seen by move_pages");
  InjectedFault injected({.call = "cuMemCreate", .result = CUDA_ERROR_NOT_PERMITTED, .count = 3});
  const std::string bound = MakeBacking(real, request).value()->Facts().what;
  EXPECT_EQ(bound, "host NUMA node 0, bound and registered, no handle, node seen by move_pages");
}

TEST_F(NodeProofs, OfTheKernelGoBeforeThoseOfTheHandle) {
  COMMPOOL_REQUIRE_EMULATOR("it stands in for a real driver");
  COMMPOOL_REQUIRE_TELLING_KERNEL();
  if (access("/sys/devices/system/node/node1", F_OK) == 0) GTEST_SKIP() << "the host has a node 1";
  ExpectMessage(MakeBacking(WithPages(RealDriver()), {.kind = BackingKind::kVmm, .placement = OnHost(1)}).status(),
                "lies on node 0, says move_pages");
}

}  // namespace
}  // namespace commpool::internal::testing
