// Reads the names and arguments of PyTorch's elementwise kernels.
#include "src/emulator/cudart/elementwise.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace commpool::internal::emulated_cudart {
namespace {

std::string Vectorized(const std::string& functor, int tensors) {
  const std::string array = "std::array<char*, " + std::to_string(tensors) + "ul>";
  return "void at::native::vectorized_elementwise_kernel<4, " + functor + ", " + array + ", false>(int, " + functor +
         ", " + array + ")";
}

std::string Unrolled(const std::string& functor, int tensors, const std::string& loading) {
  return "void at::native::unrolled_elementwise_kernel<" + functor + ", std::array<char*, " + std::to_string(tensors) +
         "ul>, 4, TrivialOffsetCalculator<0, unsigned int>, TrivialOffsetCalculator<1, unsigned int>, " +
         "at::native::memory::Load" + loading + ", at::native::memory::Store" + loading + ">(int, " + functor + ")";
}

// A launch whose tensors have `count` elements.
template <typename Functor>
std::unique_ptr<KernelWork> Understand(const std::string& name, Functor functor, int count = 2) {
  char* tensors[] = {reinterpret_cast<char*>(0x1000), reinterpret_cast<char*>(0x2000), reinterpret_cast<char*>(0x3000)};
  void* arguments[] = {&count, &functor, tensors};
  return UnderstandElementwise(name, arguments);
}

template <typename Element>
std::vector<Element> Compute(const KernelWork& work, std::vector<Element> a, const std::vector<Element>& b) {
  std::vector<Element> result(a.size());
  const void* const reads[] = {a.data(), b.data()};
  void* const writes[] = {result.data()};
  work.run(reads, writes);
  return result;
}

TEST(Elementwise, FillsEveryType) {
  const auto work = Understand(Vectorized("at::native::FillFunctor<long>", 1), int64_t{-7});
  ASSERT_NE(work, nullptr);
  ASSERT_EQ(work->writes.size(), 1u);
  EXPECT_EQ(work->writes[0].address, 0x1000u);
  EXPECT_EQ(work->writes[0].bytes, 16u);
  EXPECT_TRUE(work->reads.empty());
  EXPECT_EQ(Compute<int64_t>(*work, {0, 0}, {}), (std::vector<int64_t>{-7, -7}));
  for (const char* type : {"bool", "double", "c10::Half", "unsigned char", "unsigned short"}) {
    EXPECT_NE(Understand(Unrolled("at::native::FillFunctor<" + std::string(type) + ">", 1, "WithoutCast"), 1.0),
              nullptr)
        << type;
  }
}

TEST(Elementwise, AddsWithItsScale) {
  const auto work = Understand(Vectorized("at::native::CUDAFunctor_add<float>", 3), 2.0f);
  ASSERT_NE(work, nullptr);
  ASSERT_EQ(work->reads.size(), 2u);
  EXPECT_EQ(work->reads[1].address, 0x3000u);
  EXPECT_EQ(Compute<float>(*work, {1, 2}, {10, 20}), (std::vector<float>{21, 42}));
  struct {
    float other = 3;
    float scale = -1;
  } constant;
  const auto of_one = Understand(Vectorized("at::native::CUDAFunctorOnSelf_add<float>", 2), constant);
  ASSERT_NE(of_one, nullptr);
  EXPECT_EQ(Compute<float>(*of_one, {1, 2}, {}), (std::vector<float>{-2, -1}));
}

TEST(Elementwise, MultipliesTensorsAndScalars) {
  const std::string types = "<float, float, float, at::native::binary_internal::";
  const auto product = Understand(Vectorized("at::native::BinaryFunctor" + types + "MulFunctor<float> >", 3), '\0');
  ASSERT_NE(product, nullptr);
  EXPECT_EQ(Compute<float>(*product, {3, 4}, {5, 6}), (std::vector<float>{15, 24}));
  const auto quotient = Understand(Vectorized("at::native::BinaryFunctor" + types + "DivFunctor<float> >", 3), '\0');
  ASSERT_NE(quotient, nullptr);
  EXPECT_EQ(Compute<float>(*quotient, {3, 4}, {2, 8}), (std::vector<float>{1.5, 0.5}));
  struct {
    char operation = 0;
    float scalar = 0.5;
  } scale;
  const auto scaled = Understand(Vectorized("at::native::AUnaryFunctor" + types + "MulFunctor<float> >", 2), scale);
  ASSERT_NE(scaled, nullptr);
  EXPECT_EQ(Compute<float>(*scaled, {3, 4}, {}), (std::vector<float>{1.5, 2}));
}

TEST(Elementwise, ComputesShortFloatsAsFloats) {
  const auto work = Understand(Vectorized("at::native::CUDAFunctor_add<c10::BFloat16>", 3), 1.0f);
  ASSERT_NE(work, nullptr);
  EXPECT_EQ(work->writes[0].bytes, 4u);
  EXPECT_EQ(Compute<uint16_t>(*work, {0x3f80, 0x4000}, {0x3f80, 0x4040}), (std::vector<uint16_t>{0x4000, 0x40a0}));
  const std::string copy = "at::native::converting_copy_kernel_cuda<c10::BFloat16, float>(at::TensorIteratorBase&)";
  const auto wide = Understand(Vectorized(copy + "::{lambda(c10::BFloat16)#1}", 2), '\0');
  ASSERT_NE(wide, nullptr);
  EXPECT_EQ(wide->reads[0].bytes, 4u);
  EXPECT_EQ(wide->writes[0].bytes, 8u);
}

// The arguments of a kernel over tensors with gaps, as PyTorch 2.15 lays them out.
template <size_t kTensors, typename Held>
struct Closure {
  uint32_t dimensions = 2;
  uint32_t sizes[25][3] = {};
  uint32_t strides[25][kTensors] = {};
  char* tensors[kTensors] = {};
  Held held = {};
};

std::string Strided(const std::string& functor) {
  const std::string lambda = "at::native::gpu_kernel_impl_nocast<" + functor + ">(at::TensorIteratorBase&, " + functor +
                             " const&)::{lambda(int)#1}";
  return "void at::native::elementwise_kernel<128, 2, " + lambda + ">(int, " + lambda + ")";
}

TEST(Elementwise, FollowsGapsAndRepeats) {
  Closure<3, float> closure;
  closure.sizes[0][0] = 2;
  closure.sizes[1][0] = 3;
  const uint32_t strides[2][3] = {{4, 16, 4}, {8, 4, 0}};  // a transposed, b repeated in rows
  for (size_t dimension = 0; dimension < 2; ++dimension) {
    for (size_t tensor = 0; tensor < 3; ++tensor) closure.strides[dimension][tensor] = strides[dimension][tensor];
  }
  for (size_t tensor = 0; tensor < 3; ++tensor)
    closure.tensors[tensor] = reinterpret_cast<char*>(0x1000 * (tensor + 1));
  closure.held = 10;
  int count = 6;
  void* arguments[] = {&count, &closure};
  const auto work = UnderstandElementwise(Strided("at::native::CUDAFunctor_add<float>"), arguments);
  ASSERT_NE(work, nullptr);
  EXPECT_EQ(work->writes[0].address, 0x1000u);
  EXPECT_EQ(work->writes[0].bytes, 24u);
  EXPECT_EQ(work->reads[0].bytes, 28u) << "from the first element to the last";
  EXPECT_EQ(work->reads[1].bytes, 8u);
  EXPECT_EQ(Compute<float>(*work, {1, 2, 3, 0, 4, 5, 6}, {1, 2}), (std::vector<float>{11, 24, 12, 25, 13, 26, 0}));
  count = 7;
  EXPECT_EQ(UnderstandElementwise(Strided("at::native::CUDAFunctor_add<float>"), arguments), nullptr)
      << "the sizes are of another number of elements";
}

TEST(Elementwise, CopiesWhatAFunctorCopies) {
  const std::string functor =
      "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::"
      "operator()() const::{lambda(float)#1}";
  Closure<2, char> closure;
  closure.dimensions = 1;
  closure.sizes[0][0] = 3;
  closure.strides[0][0] = 4;
  closure.strides[0][1] = 8;
  int count = 3;
  void* arguments[] = {&count, &closure};
  const auto work = UnderstandElementwise(Strided(functor), arguments);
  ASSERT_NE(work, nullptr);
  EXPECT_EQ(Compute<float>(*work, {1, 2, 3, 4, 5}, {}), (std::vector<float>{1, 3, 5, 0, 0}));
  EXPECT_EQ(UnderstandElementwise(Strided("at::native::direct_copy_kernel_cuda(int)"), arguments), nullptr);
}

TEST(Elementwise, LeavesWhatItDoesNotUnderstand) {
  for (const std::string& name : {
           std::string("thing::work(float*)"),
           Vectorized("at::native::AbsFunctor<float>", 2),
           Vectorized("at::native::FillFunctor<c10::complex<float> >", 1),
           Vectorized("at::native::CUDAFunctor_add<bool>", 3),
           Vectorized("at::native::CUDAFunctor_add<float>", 2),
           Vectorized("at::native::BinaryFunctor<float, float, bool, at::native::CompareEqFunctor<float> >", 3),
           Vectorized("at::native::BinaryFunctor<long, long, long, at::native::binary_internal::DivFunctor<long> >", 3),
           Unrolled("at::native::FillFunctor<float>", 1, "WithCast<1>"),
           std::string("void at::native::vectorized_elementwise_kernel<4"),
       }) {
    EXPECT_EQ(Understand(name, 1.0), nullptr) << name;
  }
}

}  // namespace
}  // namespace commpool::internal::emulated_cudart
