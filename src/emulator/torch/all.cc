// All of it in one translation unit, as the user's compiler makes it. The emulated runtime opens the binary and calls
// the function.
#include <ATen/Context.h>

#include "src/emulator/torch/at_once.cc"
#include "src/emulator/torch/blocks.cc"
#include "src/emulator/torch/by_name.cc"
#include "src/emulator/torch/convolution.cc"
#include "src/emulator/torch/deferred.cc"
#include "src/emulator/torch/emulator.cc"
#include "src/emulator/torch/operand.cc"
#include "src/emulator/torch/overrides.cc"
#include "src/emulator/torch/place.cc"
#include "src/emulator/torch/python_frames.cc"
#include "src/emulator/torch/random_state.cc"

extern "C" __attribute__((visibility("default"))) void commpoolEmulatedTorchInstall() {
  commpool::internal::emulated_torch::OverrideOperations();
  // Their kernels belong to no operation that the CPU has.
  at::Context& context = at::globalContext();
  context.setUserEnabledCuDNN(false);
  context.setSDPUseFlash(false);
  context.setSDPUseMemEfficient(false);
  context.setSDPUseCuDNN(false);
}
