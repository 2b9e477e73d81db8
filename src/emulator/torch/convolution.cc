#include "src/emulator/torch/convolution.h"

#include <ATen/ATen.h>

#include <vector>

namespace commpool::internal::emulated_torch {

namespace {

int64_t At(const std::vector<int64_t>& values, size_t index) { return values.size() == 1 ? values[0] : values[index]; }

at::MemoryFormat FormatOf(const at::Tensor& input, const at::Tensor& weight) {
  const at::MemoryFormat format = input.suggest_memory_format();
  return format == at::MemoryFormat::Contiguous ? weight.suggest_memory_format() : format;
}

}  // namespace

c10::Stack ConvolutionOutputs(const c10::Stack& arguments) {
  const at::Tensor input = arguments[0].toTensor();
  const at::Tensor weight = arguments[1].toTensor();
  const auto stride = arguments[3].toIntVector();
  const auto padding = arguments[4].toIntVector();
  const auto dilation = arguments[5].toIntVector();
  const bool transposed = arguments[6].toBool();
  const auto output_padding = arguments[7].toIntVector();
  const int64_t groups = arguments[8].toInt();
  TORCH_CHECK(input.dim() == weight.dim() && input.dim() > 2, "Expected ", weight.dim(),
              "D input of a convolution, got ", input.dim(), "D");
  const int64_t channels = transposed ? weight.size(0) : weight.size(1) * groups;
  TORCH_CHECK(input.size(1) == channels, "Given groups=", groups, ", weight of size ", weight.sizes(),
              ", expected input", input.sizes(), " to have ", channels, " channels, but got ", input.size(1),
              " channels instead");
  TORCH_CHECK(input.scalar_type() == weight.scalar_type(), "Input type (", input.scalar_type(), ") and weight type (",
              weight.scalar_type(), ") should be the same");
  std::vector<int64_t> sizes = {input.size(0), transposed ? weight.size(1) * groups : weight.size(0)};
  for (int64_t dimension = 2; dimension < input.dim(); ++dimension) {
    const auto index = static_cast<size_t>(dimension - 2);
    const int64_t kernel = At(dilation, index) * (weight.size(dimension) - 1) + 1;
    const int64_t around = 2 * At(padding, index);
    const int64_t size = input.size(dimension);
    sizes.push_back(transposed ? (size - 1) * At(stride, index) - around + kernel + At(output_padding, index)
                               : (size + around - kernel) / At(stride, index) + 1);
    TORCH_CHECK(transposed || size + around >= kernel,
                "Calculated padded input size per channel is smaller than the kernel");
  }
  return {at::empty(sizes, input.options(), FormatOf(input, weight))};
}

c10::Stack ConvolutionBackwardOutputs(const c10::Stack& arguments) {
  const at::Tensor input = arguments[1].toTensor();
  const at::Tensor weight = arguments[2].toTensor();
  const auto wanted = arguments[10].toBoolList();
  const auto like = [&](const at::Tensor& tensor) {
    return at::empty(tensor.sizes(), tensor.options(), FormatOf(input, weight));
  };
  const int64_t channels = arguments[0].toTensor().size(1);
  return {wanted.get(0) ? like(input) : at::Tensor(), wanted.get(1) ? like(weight) : at::Tensor(),
          wanted.get(2) ? at::empty({channels}, weight.options()) : at::Tensor()};
}

}  // namespace commpool::internal::emulated_torch
