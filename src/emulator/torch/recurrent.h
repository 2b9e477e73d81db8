// Recurrent cells, whose fused kernels only CUDA has. Their workspaces are read by their backward alone.
#pragma once

#include "src/emulator/torch/deferred.h"

namespace commpool::internal::emulated_torch {

void LstmCell(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&);
void LstmCellBackward(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&);
void GruCell(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&);
void GruCellBackward(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&);

}  // namespace commpool::internal::emulated_torch
