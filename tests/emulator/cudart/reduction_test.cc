// Reads the names and arguments of PyTorch's reduction kernels.
#include "src/emulator/cudart/reduction.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace commpool::internal::emulated_cudart {
namespace {

template <size_t kTensors>
struct Calculator {
  uint32_t dimensions = 1;
  uint32_t sizes[25][3] = {};
  uint32_t strides[25][kTensors] = {};
};

// at::ReduceOp of floats, as PyTorch 2.15 lays it out.
struct ReduceOp {
  float factor = 0;
  float neutral = 0;
  uint32_t element_bytes = 4;
  uint32_t inputs = 0;
  uint32_t outputs = 0;
  uint32_t division[13] = {};
  Calculator<1> input;
  Calculator<2> output;
  const char* source = reinterpret_cast<const char*>(0x1000);
  char* targets[2] = {reinterpret_cast<char*>(0x2000), nullptr};
  void* buffers[3] = {};
  int64_t first = 0;
  bool goes_on = false;
  bool last = true;
};

// The sums of the columns of a matrix with rows of `columns`.
ReduceOp Columns(uint32_t rows, uint32_t columns) {
  ReduceOp operation;
  operation.inputs = rows;
  operation.outputs = columns;
  operation.input.sizes[0][0] = rows;
  operation.input.strides[0][0] = columns * 4;
  operation.output.sizes[0][0] = columns;
  operation.output.strides[0][0] = 4;
  operation.output.strides[0][1] = 4;
  return operation;
}

std::string Reduction(const std::string& operation) {
  return "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, " + operation +
         ", unsigned int, float, 4, 4> >(at::native::ReduceOp<float>)";
}

const std::string kSum = Reduction(
    "at::native::func_wrapper_t<float, at::native::sum_functor<float, float, float>::operator()(at::"
    "TensorIterator&)::{lambda(float, float)#1}>");
const std::string kMean = Reduction("at::native::MeanOps<float, float, float, float>");

std::vector<float> Reduce(const KernelWork& work, const std::vector<float>& content, size_t results) {
  std::vector<float> result(results);
  const void* const reads[] = {content.data()};
  void* const writes[] = {result.data()};
  work.run(reads, writes);
  return result;
}

TEST(Reduction, SumsWhereTheElementsLie) {
  ReduceOp operation = Columns(3, 2);
  void* arguments[] = {&operation};
  const auto work = UnderstandReduction(kSum, arguments);
  ASSERT_NE(work, nullptr);
  EXPECT_EQ(work->reads[0].address, 0x1000u);
  EXPECT_EQ(work->reads[0].bytes, 24u);
  EXPECT_EQ(work->writes[0].address, 0x2000u);
  EXPECT_EQ(work->writes[0].bytes, 8u);
  const auto sums = [&] { return Reduce(*work, {1, 10, 2, 20, 3, 30}, 2); };
  EXPECT_EQ(sums(), (std::vector<float>{6, 60}));
  EXPECT_EQ(sums(), (std::vector<float>{6, 60})) << "a replay begins anew";
}

TEST(Reduction, TakesMeansByTheirFactor) {
  ReduceOp operation = Columns(2, 1);
  operation.factor = 0.5;
  void* arguments[] = {&operation};
  const auto work = UnderstandReduction(kMean, arguments);
  ASSERT_NE(work, nullptr);
  EXPECT_EQ(Reduce(*work, {4, 8}, 1), (std::vector<float>{6}));
}

TEST(Reduction, LeavesWhatItDoesNotUnderstand) {
  ReduceOp operation = Columns(2, 1);
  void* arguments[] = {&operation};
  EXPECT_EQ(
      UnderstandReduction(Reduction("at::native::func_wrapper_t<float, at::native::MaxNanFunctor<float> >"), arguments),
      nullptr);
  EXPECT_EQ(UnderstandReduction("thing::work(float*)", arguments), nullptr);
  operation.goes_on = true;
  EXPECT_EQ(UnderstandReduction(kSum, arguments), nullptr) << "a part of a larger one";
  operation.goes_on = false;
  operation.input.sizes[0][0] = 5;
  EXPECT_EQ(UnderstandReduction(kSum, arguments), nullptr) << "sizes of another number of elements";
}

}  // namespace
}  // namespace commpool::internal::emulated_cudart
