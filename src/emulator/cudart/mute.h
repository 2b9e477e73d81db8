// Calls of PyTorch's CUDA code that succeed and do nothing, while PyTorch's own operations make outputs and temporaries
// (src/emulator/torch). The state is the calling thread's.
#ifndef COMMPOOL_SRC_EMULATOR_CUDART_MUTE_H_
#define COMMPOOL_SRC_EMULATOR_CUDART_MUTE_H_

#include "src/emulator/runtime_extension.h"

namespace commpool::internal::emulated_cudart {

bool IsMuted();

// Counts a call that did nothing. REQUIRES: IsMuted().
void NoteMuted();

// Notes that the call in progress cannot be muted. REQUIRES: IsMuted().
void NoteMustRunAtOnce();

}  // namespace commpool::internal::emulated_cudart

#endif  // COMMPOOL_SRC_EMULATOR_CUDART_MUTE_H_
