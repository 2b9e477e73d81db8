// Convolutions: the emulator has no cuDNN, so they are taken whole, before PyTorch chooses a library.
#pragma once

#include <ATen/core/stack.h>

namespace commpool::internal::emulated_torch {

// Make the outputs of aten::convolution and of its backward, which nobody has computed.
c10::Stack ConvolutionOutputs(const c10::Stack& arguments);
c10::Stack ConvolutionBackwardOutputs(const c10::Stack& arguments);

}  // namespace commpool::internal::emulated_torch
