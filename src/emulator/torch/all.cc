// All of it in one translation unit, as the user's compiler makes it. The emulated runtime opens the binary and calls
// the function.
#include <ATen/Context.h>
#include <torch/csrc/jit/codegen/fuser/interface.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>

#include "src/emulator/torch/at_once.cc"
#include "src/emulator/torch/attention.cc"
#include "src/emulator/torch/blocks.cc"
#include "src/emulator/torch/by_name.cc"
#include "src/emulator/torch/convolution.cc"
#include "src/emulator/torch/deferred.cc"
#include "src/emulator/torch/emulator.cc"
#include "src/emulator/torch/muted.cc"
#include "src/emulator/torch/normalization.cc"
#include "src/emulator/torch/operand.cc"
#include "src/emulator/torch/overrides.cc"
#include "src/emulator/torch/place.cc"
#include "src/emulator/torch/python_frames.cc"
#include "src/emulator/torch/random_state.cc"
#include "src/emulator/torch/recurrent.cc"

extern "C" __attribute__((visibility("default"))) void commpoolEmulatedTorchInstall() {
  using namespace commpool::internal::emulated_torch;  // NOLINT: this function is C on the outside
  OverrideOperations();
  at::Context& context = at::globalContext();
  // Its kernels belong to no operation that the CPU has.
  context.setUserEnabledCuDNN(false);
  context.setSDPUseCuDNN(false);
  // Their last bits are not the CPU's. Without arithmetic their memory counts.
  if (WhenKernelsRun() != Kernels::kNone) {
    context.setSDPUseFlash(false);
    context.setSDPUseMemEfficient(false);
  }
  // TorchScript would compile kernels.
  torch::jit::overrideCanFuseOnGPU(false);
  torch::jit::setTensorExprFuserEnabled(false);
}
