#include "src/emulator/torch/normalization.h"

#include <ATen/ATen.h>

#include <vector>

#include "src/emulator/torch/values.h"

namespace commpool::internal::emulated_torch {

namespace {

// All dimensions but that of the channels.
std::vector<int64_t> Others(const at::Tensor& tensor) {
  std::vector<int64_t> others;
  for (int64_t dimension = 0; dimension < tensor.dim(); ++dimension) {
    if (dimension != 1) others.push_back(dimension);
  }
  return others;
}

// A value for each channel, in the shape of the input.
at::Tensor Along(const at::Tensor& channels, const at::Tensor& input) {
  std::vector<int64_t> sizes(static_cast<size_t>(input.dim()), 1);
  sizes[1] = -1;
  return Wide(channels).view(sizes);
}

}  // namespace

void BatchNormStatistics(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&) {
  const at::Tensor input = Wide((*stack)[0].toTensor());
  const auto [variance, mean] = at::var_mean(input, Others(input), /*unbiased=*/false);
  *stack = {mean, (variance + (*stack)[1].toDouble()).rsqrt()};
}

void BatchNormElements(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&) {
  const at::Tensor input = Wide((*stack)[0].toTensor());
  const at::Tensor weight = OptionalTensor((*stack)[1]);
  const at::Tensor bias = OptionalTensor((*stack)[2]);
  at::Tensor output = (input - Along((*stack)[3].toTensor(), input)) * Along((*stack)[4].toTensor(), input);
  if (weight.defined()) output = output * Along(weight, input);
  if (bias.defined()) output = output + Along(bias, input);
  *stack = {output};
}

// Joins the statistics of the ranks, a row each, by their counts.
void BatchNormGather(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&) {
  const at::Tensor means = (*stack)[1].toTensor();
  const at::Tensor deviations = (*stack)[2].toTensor();
  at::Tensor running_mean = OptionalTensor((*stack)[3]);
  at::Tensor running_variance = OptionalTensor((*stack)[4]);
  const double momentum = (*stack)[5].toDouble();
  const double epsilon = (*stack)[6].toDouble();
  const at::Tensor counts = (*stack)[7].isTensor() ? (*stack)[7].toTensor().view({-1, 1}).to(means.scalar_type())
                                                   : at::full({means.size(0), 1}, (*stack)[7].toInt(), means.options());
  const at::Tensor total = counts.sum();
  const at::Tensor mean = (means * counts).sum(0) / total;
  const at::Tensor squares = ((deviations.pow(-2) - epsilon + (means - mean).square()) * counts).sum(0);
  if (running_mean.defined()) running_mean.mul_(1 - momentum).add_(mean * momentum);
  if (running_variance.defined()) running_variance.mul_(1 - momentum).add_(squares / (total - 1) * momentum);
  *stack = {mean, (squares / total + epsilon).rsqrt()};
}

void BatchNormBackwardReduce(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&) {
  const at::Tensor grad = Wide((*stack)[0].toTensor());
  const at::Tensor input = Wide((*stack)[1].toTensor());
  const at::Tensor mean = (*stack)[2].toTensor();
  const at::Tensor sum = grad.sum(Others(grad));
  const at::Tensor sum_of_products = (grad * (input - Along(mean, input))).sum(Others(grad));
  *stack = {sum, sum_of_products, sum_of_products * (*stack)[3].toTensor(), sum};
}

void BatchNormBackwardElements(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&) {
  const at::Tensor grad = Wide((*stack)[0].toTensor());
  const at::Tensor input = Wide((*stack)[1].toTensor());
  const at::Tensor deviation = (*stack)[3].toTensor();
  const at::Tensor weight = OptionalTensor((*stack)[4]);
  const at::Tensor total = (*stack)[7].toTensor().sum();
  const at::Tensor slope = (*stack)[6].toTensor() / total * deviation.square();
  at::Tensor result = grad - Along((*stack)[5].toTensor() / total, input) -
                      (input - Along((*stack)[2].toTensor(), input)) * Along(slope, input);
  result = result * Along(weight.defined() ? deviation * weight : deviation, input);
  *stack = {result};
}

void RmsNormBackward(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&) {
  const at::Tensor grad = Wide((*stack)[0].toTensor());
  const at::Tensor input = Wide((*stack)[1].toTensor());
  const at::Tensor deviation = (*stack)[3].toTensor();
  const at::Tensor weight = OptionalTensor((*stack)[4]);
  std::vector<int64_t> normalized;
  std::vector<int64_t> others;
  const auto first = input.dim() - static_cast<int64_t>((*stack)[2].toIntVector().size());
  for (int64_t dimension = 0; dimension < input.dim(); ++dimension) {
    (dimension < first ? others : normalized).push_back(dimension);
  }
  const at::Tensor scaled = input * deviation;
  const at::Tensor inner = weight.defined() ? grad * Wide(weight) : grad;
  const at::Tensor result = deviation * (inner - scaled * (inner * scaled).mean(normalized, /*keepdim=*/true));
  const at::Tensor products = grad * scaled;
  *stack = {result, !weight.defined() ? at::Tensor() : others.empty() ? products : products.sum(others)};
}

}  // namespace commpool::internal::emulated_torch
