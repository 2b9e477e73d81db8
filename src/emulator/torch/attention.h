// Fused attention, by the operations of which PyTorch's own attention without fusion is made.
#pragma once

#include "src/emulator/torch/deferred.h"

namespace commpool::internal::emulated_torch {

void FlashAttention(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator& generator);
void FlashAttentionBackward(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&);
void EfficientAttention(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator& generator);
void EfficientAttentionBackward(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&);

}  // namespace commpool::internal::emulated_torch
