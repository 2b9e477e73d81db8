// Reads the names and arguments of PyTorch's kernels over lists of tensors.
#include "src/emulator/cudart/tensor_lists.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace commpool::internal::emulated_cudart {
namespace {

constexpr size_t kChunk = 65536;

// As PyTorch 2.15 for CUDA 13 lays it out: the second tensor has two chunks.
struct Metadata {
  char* tensors[2][448] = {};
  int64_t elements[448] = {2, kChunk + 1};
  uint16_t tensor_of_block[2240] = {0, 1, 1};
  int32_t chunk_of_block[2240] = {0, 0, 1};
};

std::string Kernel(const std::string& lists, const std::string& functor, const std::string& operation) {
  const std::string in = "at::native::(anonymous namespace)::";
  return "void " + in + "multi_tensor_apply_kernel<" + in + "TensorListMetadata<" + lists + ">, " + in + functor +
         ", " + operation + ", float>(" + in + "TensorListMetadata<" + lists + ">)";
}

const std::string kAdd = Kernel("2", "BinaryOpListAlphaFunctor<float, 2, 2, 0>", "std::plus<float>");

class TensorLists : public ::testing::Test {
 protected:
  TensorLists() {
    for (size_t list = 0; list < 2; ++list) {
      for (size_t tensor = 0; tensor < 2; ++tensor) {
        metadata_->tensors[list][tensor] = reinterpret_cast<char*>(0x100000 * (2 * list + tensor + 1));
      }
    }
  }

  std::unique_ptr<KernelWork> Understand(const std::string& name, size_t blocks = 3) {
    char functor = 0;
    char operation = 0;
    float scalar = -2;
    void* arguments[] = {metadata_.get(), &functor, &operation, &scalar};
    return UnderstandTensorLists(name, arguments, blocks);
  }

  std::unique_ptr<Metadata> metadata_ = std::make_unique<Metadata>();
};

TEST_F(TensorLists, AddBlockByBlock) {
  const auto work = Understand(kAdd);
  ASSERT_NE(work, nullptr);
  ASSERT_EQ(work->writes.size(), 3u);
  ASSERT_EQ(work->reads.size(), 6u);
  EXPECT_EQ(work->writes[0].bytes, 8u);
  EXPECT_EQ(work->writes[1].bytes, kChunk * 4);
  EXPECT_EQ(work->writes[2].address, 0x200000 + kChunk * 4);
  EXPECT_EQ(work->writes[2].bytes, 4u);
  EXPECT_EQ(work->reads[5].address, 0x400000 + kChunk * 4);
  std::vector<float> values(2 * kChunk, 1);
  std::vector<float> result(kChunk);
  const void* const reads[] = {values.data(), values.data(), values.data(),
                               values.data(), values.data(), values.data()};
  void* const writes[] = {result.data(), result.data(), result.data()};
  work->run(reads, writes);
  EXPECT_EQ(result, std::vector<float>(kChunk, -1)) << "1 - 2 * 1";
}

TEST_F(TensorLists, LeaveWhatIsNotUnderstood) {
  EXPECT_EQ(Understand(Kernel("2", "BinaryOpListAlphaFunctor<float, 2, 2, 0>", "std::minus<float>")), nullptr);
  EXPECT_EQ(Understand(Kernel("3", "BinaryOpListAlphaFunctor<float, 3, 2, 2>", "std::plus<float>")), nullptr);
  EXPECT_EQ(Understand(Kernel("2", "BinaryOpListAlphaFunctor<bool, 2, 2, 0>", "std::plus<bool>")), nullptr);
  EXPECT_EQ(Understand("thing::work(float*)"), nullptr);
  metadata_->chunk_of_block[2] = 2;
  EXPECT_EQ(Understand(kAdd), nullptr) << "a chunk that the tensor has not";
  metadata_->tensor_of_block[2] = 448;
  EXPECT_EQ(Understand(kAdd), nullptr);
}

}  // namespace
}  // namespace commpool::internal::emulated_cudart
