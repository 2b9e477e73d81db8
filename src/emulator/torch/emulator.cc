#include "src/emulator/torch/emulator.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <string_view>

namespace commpool::internal::emulated_torch {

namespace {

template <typename Function>
void FindFunction(const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  TORCH_CHECK(*function != nullptr, "the emulator has no function ", name);
}

Emulator LoadEmulator() {
  Emulator emulator = {};
  FindFunction("commpoolEmulatorLaunchKept", &emulator.launch_kept);
  FindFunction("commpoolEmulatorKernelFailed", &emulator.kernel_failed);
  FindFunction("commpoolEmulatorIssuedAt", &emulator.issued_at);
  FindFunction("commpoolEmulatorBlockBegins", &emulator.block_begins);
  FindFunction("commpoolEmulatorBlockEnds", &emulator.block_ends);
  FindFunction("commpoolEmulatorSetting", &emulator.setting);
  FindFunction("commpoolEmulatorMuteBegin", &emulator.mute_begin);
  FindFunction("commpoolEmulatorMuteEnd", &emulator.mute_end);
  return emulator;
}

}  // namespace

const Emulator& TheEmulator() {
  static const Emulator emulator = LoadEmulator();
  return emulator;
}

Kernels WhenKernelsRun() {
  static const Kernels kernels = [] {
    const std::string_view setting = TheEmulator().setting("kernels");
    return setting == "now" ? Kernels::kNow : setting == "none" ? Kernels::kNone : Kernels::kLater;
  }();
  return kernels;
}

bool LooksForRaces() {
  static const bool looks = std::string_view(TheEmulator().setting("races")) == "yes";
  return looks;
}

}  // namespace commpool::internal::emulated_torch
