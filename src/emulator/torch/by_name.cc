#include "src/emulator/torch/by_name.h"

#include <ATen/ATen.h>

#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/emulator/torch/attention.h"
#include "src/emulator/torch/normalization.h"
#include "src/emulator/torch/recurrent.h"

namespace commpool::internal::emulated_torch {

namespace {

void Dropout(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator& generator) {
  const at::Tensor input = (*stack)[0].toTensor();
  const double probability = (*stack)[1].toDouble();
  const bool train = (*stack)[2].isNone() || (*stack)[2].toBool();
  at::Tensor mask = at::ones_like(input, input.options().dtype(at::kBool));
  at::Tensor output = input.clone();
  if (train && input.numel() != 0) {
    mask.bernoulli_(1 - probability, generator);
    output = input * mask * (probability == 1 ? 0.0 : 1 / (1 - probability));
  }
  *stack = {output, mask};
}

// The CPU softens in the input's type only.
template <bool kLogarithm>
void Softmax(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&) {
  at::Tensor input = (*stack)[0].toTensor();
  if ((*stack)[2].toBool()) input = input.to(at::kFloat);
  const int64_t dimension = (*stack)[1].toInt();
  *stack = {kLogarithm ? at::_log_softmax(input, dimension, false) : at::_softmax(input, dimension, false)};
}

template <bool kLogarithm>
void SoftmaxBackward(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&) {
  const at::Tensor grad = (*stack)[0].toTensor();
  const at::Tensor output = (*stack)[1].toTensor();
  const int64_t dimension = (*stack)[2].toInt();
  *stack = {kLogarithm ? at::_log_softmax_backward_data(grad, output, dimension, grad.scalar_type())
                       : at::_softmax_backward_data(grad, output, dimension, grad.scalar_type())};
}

// The CPU leaves the bags of the indices to backward, and counts no bag that only ends the last one.
void EmbeddingBag(const c10::OperatorHandle& operation, c10::Stack* stack, const at::Generator&) {
  const at::Tensor indices = (*stack)[1].toTensor();
  const at::Tensor offsets = (*stack)[2].toTensor();
  operation.callBoxed(stack);
  const at::Tensor sizes = (*stack)[2].toTensor();
  if (sizes.numel() != 0) (*stack)[2] = at::constant_pad_nd(sizes, {0, offsets.numel() - sizes.numel()});
  if ((*stack)[1].toTensor().numel() != 0 || indices.numel() == 0) return;
  at::Tensor begins = at::zeros({indices.numel() + 1}, offsets.options());
  begins.index_add_(0, offsets, at::ones_like(offsets));
  (*stack)[1] = begins.narrow(0, 0, indices.numel()).cumsum(0) - 1;
}

// A buffer, which the CPU makes in forward.
void LogSigmoidBackward(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&) {
  const at::Tensor input = (*stack)[1].toTensor();
  const at::Tensor buffer = std::get<1>(at::log_sigmoid_forward(input));
  *stack = {at::log_sigmoid_backward((*stack)[0].toTensor(), input, buffer)};
}

// In the type of the product.
void MatrixProduct(const c10::OperatorHandle& operation, c10::Stack* stack, const at::Generator&) {
  const std::string& name = operation.schema().name();
  const bool adds = name.find("add") != std::string::npos;
  const at::ScalarType type = (*stack)[adds ? 3 : 2].toScalarType();
  const at::Tensor first = (*stack)[0].toTensor().to(type);
  const at::Tensor second = (*stack)[1].toTensor().to(type);
  if (!adds) {
    *stack = {first.matmul(second)};
    return;
  }
  const at::Tensor third = (*stack)[2].toTensor().to(type);
  const at::Scalar beta = (*stack)[4].toScalar();
  const at::Scalar alpha = (*stack)[5].toScalar();
  *stack = {name == "aten::addmm" ? at::addmm(first, second, third, beta, alpha)
                                  : at::baddbmm(first, second, third, beta, alpha)};
}

// FBGEMM's tables. What CUDA's kernel has on the device is the CPU's host argument, which stands before; of the list of
// weights it takes three: the tables, their places and their offsets.
void Tables(const c10::OperatorHandle& operation, c10::Stack* stack, const at::Generator&) {
  const auto& declared = operation.schema().arguments();
  for (size_t index = 0; index + 1 < declared.size(); ++index) {
    const std::string& name = declared[index].name();
    if (name.starts_with("host_") || name.ends_with("_host")) (*stack)[index] = (*stack)[index + 1];
    if (name != "weights") continue;
    std::vector<at::Tensor> weights = (*stack)[index].toTensorVector();
    weights.resize(3);
    (*stack)[index] = std::move(weights);
  }
  operation.callBoxed(stack);
}

}  // namespace

CpuKernel KernelByName(const c10::OperatorName& name) {
  if (name.name.starts_with("fbgemm::split_embedding") && name.name.ends_with("pt2_wrapper")) return Tables;
  static const auto* const kernels = new std::unordered_map<std::string, CpuKernel>{
      {"aten::native_dropout", Dropout},
      {"aten::_softmax", Softmax<false>},
      {"aten::_log_softmax", Softmax<true>},
      {"aten::_softmax_backward_data", SoftmaxBackward<false>},
      {"aten::_log_softmax_backward_data", SoftmaxBackward<true>},
      {"aten::log_sigmoid_backward", LogSigmoidBackward},
      {"aten::_embedding_bag", EmbeddingBag},
      {"aten::_embedding_bag_forward_only", EmbeddingBag},
      {"aten::_thnn_fused_lstm_cell", LstmCell},
      {"aten::_thnn_fused_lstm_cell_backward_impl", LstmCellBackward},
      {"aten::_thnn_fused_gru_cell", GruCell},
      {"aten::_thnn_fused_gru_cell_backward", GruCellBackward},
      {"aten::batch_norm_stats", BatchNormStatistics},
      {"aten::batch_norm_elemt", BatchNormElements},
      {"aten::batch_norm_gather_stats", BatchNormGather},
      {"aten::batch_norm_gather_stats_with_counts", BatchNormGather},
      {"aten::batch_norm_backward_reduce", BatchNormBackwardReduce},
      {"aten::batch_norm_backward_elemt", BatchNormBackwardElements},
      {"aten::_fused_rms_norm_backward", RmsNormBackward},
      {"aten::_scaled_dot_product_flash_attention", FlashAttention},
      {"aten::_scaled_dot_product_flash_attention_backward", FlashAttentionBackward},
      {"aten::_scaled_dot_product_efficient_attention", EfficientAttention},
      {"aten::_scaled_dot_product_efficient_attention_backward", EfficientAttentionBackward},
      {"aten::mm", MatrixProduct},
      {"aten::bmm", MatrixProduct},
      {"aten::addmm", MatrixProduct},
      {"aten::baddbmm", MatrixProduct},
  };
  const auto found = kernels->find(name.name);
  if (found == kernels->end()) return nullptr;
  // Only with another type of the product do matrix products differ from the CPU's.
  const bool other_type = name.overload_name.rfind("dtype", 0) == 0;
  return (found->second == MatrixProduct) == other_type ? found->second : nullptr;
}

}  // namespace commpool::internal::emulated_torch
