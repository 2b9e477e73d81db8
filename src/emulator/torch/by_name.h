// Operations whose CPU kernel has another name, takes other arguments, or does not exist.
#pragma once

#include "src/emulator/torch/deferred.h"

namespace commpool::internal::emulated_torch {

// Null for an operation that runs as it is.
CpuKernel KernelByName(const c10::OperatorName& name);

}  // namespace commpool::internal::emulated_torch
