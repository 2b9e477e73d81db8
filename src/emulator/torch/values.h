// The tensors among the arguments of an operation.
#ifndef COMMPOOL_SRC_EMULATOR_TORCH_VALUES_H_
#define COMMPOOL_SRC_EMULATOR_TORCH_VALUES_H_

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

inline bool Writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

}  // namespace commpool::internal::emulated_torch

#endif  // COMMPOOL_SRC_EMULATOR_TORCH_VALUES_H_
