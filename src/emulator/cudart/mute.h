// Calls of PyTorch's CUDA code that succeed and do nothing, while PyTorch's own operations make outputs and temporaries
// (src/emulator/torch). The state is the calling thread's.
#pragma once

#include "src/emulator/runtime_extension.h"

namespace commpool::internal::emulated_cudart {

bool IsMuted();

// Counts a call that did nothing. REQUIRES: IsMuted().
void NoteMuted();

// Notes that the call in progress cannot be muted. REQUIRES: IsMuted().
void NoteMustRunAtOnce();

}  // namespace commpool::internal::emulated_cudart
