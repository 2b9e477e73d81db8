// The tensors among the arguments of an operation.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <optional>
#include <vector>

namespace commpool::internal::emulated_torch {

// Returns the value with each tensor in it, defined or not, replaced by `replaced(tensor)`.
template <typename Replaced>
c10::IValue WithTensors(const c10::IValue& value, Replaced&& replaced) {
  if (value.isTensor()) return replaced(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(replaced(tensor));
    return tensors;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      tensors.push_back(tensor.has_value() ? std::optional<at::Tensor>(replaced(*tensor)) : std::nullopt);
    }
    return tensors;
  }
  return value;
}

// Calls `visit` for each tensor in the value, defined or not.
template <typename Visit>
void ForEachTensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      if (tensor.has_value()) visit(*tensor);
    }
  }
}

// The tensor of an optional argument; undefined without one.
inline at::Tensor OptionalTensor(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

// Half and bfloat16 as float.
inline at::Tensor Wide(const at::Tensor& tensor) {
  const bool is_short = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
  return is_short ? tensor.to(at::kFloat) : tensor;
}

// Says whether the operation writes to the argument of that number.
inline bool Writes(const c10::FunctionSchema& schema, const c10::Stack& arguments, size_t number) {
  const c10::Argument& argument = schema.arguments()[number];
  if (argument.alias_info() != nullptr) return argument.alias_info()->isWrite();
  // Batch normalisation in training writes its statistics, although its schema does not say so.
  if (argument.name() != "running_mean" && argument.name() != "running_var") return false;
  const auto training = schema.argumentIndexWithName("training");
  if (training.has_value()) return arguments[static_cast<size_t>(*training)].toBool();
  return schema.name().rfind("aten::batch_norm_gather_stats", 0) == 0;
}

}  // namespace commpool::internal::emulated_torch
