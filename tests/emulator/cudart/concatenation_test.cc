// Reads the names and arguments of PyTorch's concatenation kernels.
#include "src/emulator/cudart/concatenation.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace commpool::internal::emulated_cudart {
namespace {

// As PyTorch 2.15 lays it out.
struct Inputs {
  const char* data[128] = {reinterpret_cast<const char*>(0x2000), reinterpret_cast<const char*>(0x3000)};
  uint32_t offset[128] = {0, 2};
  uint32_t size[128] = {2, 1};
  uint32_t elements[128] = {2, 1};
};

std::string Kernel(const std::string& kind, const std::string& dimensions) {
  return "void at::native::(anonymous namespace)::CatArrayBatchedCopy" + kind +
         "<at::native::(anonymous namespace)::OpaqueType<4u>, unsigned int, " + dimensions + ", 128, 1>(char*)";
}

std::unique_ptr<KernelWork> Understand(const std::string& name, Inputs inputs, size_t tensors = 2) {
  auto* target = reinterpret_cast<char*>(0x1000);
  void* arguments[] = {&target, &inputs};
  return UnderstandConcatenation(name, arguments, tensors);
}

TEST(Concatenation, PutsFlatTensorsBehindEachOther) {
  const auto work = Understand(Kernel("_contig", "1"), {});
  ASSERT_NE(work, nullptr);
  ASSERT_EQ(work->writes.size(), 2u);
  EXPECT_EQ(work->writes[1].address, 0x1008u);
  EXPECT_EQ(work->writes[1].bytes, 4u);
  EXPECT_EQ(work->reads[0].address, 0x2000u);
  const std::vector<int> first = {1, 2};
  const std::vector<int> second = {3};
  std::vector<int> result(3);
  const void* const reads[] = {first.data(), second.data()};
  void* const writes[] = {result.data(), result.data() + 2};
  work->run(reads, writes);
  EXPECT_EQ(result, (std::vector<int>{1, 2, 3}));
  EXPECT_NE(Understand(Kernel("_vectorized", "1"), {}), nullptr);
  EXPECT_NE(Understand(Kernel("_alignedK_contig", "1"), {}), nullptr);
}

TEST(Concatenation, LeavesWhatItDoesNotUnderstand) {
  EXPECT_EQ(Understand(Kernel("", "1"), {}), nullptr) << "with gaps";
  EXPECT_EQ(Understand(Kernel("_contig", "2"), {}), nullptr) << "of two dimensions";
  EXPECT_EQ(Understand(Kernel("_contig", "1"), {}, 0), nullptr);
  EXPECT_EQ(Understand(Kernel("_contig", "1"), {}, 129), nullptr);
  Inputs inputs;
  inputs.size[1] = 3;
  EXPECT_EQ(Understand(Kernel("_contig", "1"), inputs), nullptr);
}

}  // namespace
}  // namespace commpool::internal::emulated_cudart
