// Normalisations whose kernels only CUDA has: batch normalisation over several ranks, and by root mean squares.
#pragma once

#include "src/emulator/torch/deferred.h"

namespace commpool::internal::emulated_torch {

void BatchNormStatistics(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&);
void BatchNormElements(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&);
void BatchNormGather(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&);
void BatchNormBackwardReduce(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&);
void BatchNormBackwardElements(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&);
void RmsNormBackward(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&);

}  // namespace commpool::internal::emulated_torch
