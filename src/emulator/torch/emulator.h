// What PyTorch's operations ask of the emulator, which is preloaded: its functions by name. Any thread.
#pragma once

#include "src/emulator/runtime_extension.h"

namespace commpool::internal::emulated_torch {

struct Emulator {
  decltype(&commpoolEmulatorLaunchKept) launch_kept;
  decltype(&commpoolEmulatorKernelFailed) kernel_failed;
  decltype(&commpoolEmulatorIssuedAt) issued_at;
  decltype(&commpoolEmulatorBlockBegins) block_begins;
  decltype(&commpoolEmulatorBlockEnds) block_ends;
  decltype(&commpoolEmulatorSetting) setting;
  decltype(&commpoolEmulatorMuteBegin) mute_begin;
  decltype(&commpoolEmulatorMuteEnd) mute_end;
};

// Throws if the emulator is not there.
const Emulator& TheEmulator();

// When kernels run: in the order of their streams, before their call returns, or not at all.
enum class Kernels { kLater, kNow, kNone };
Kernels WhenKernelsRun();

// Whether places and blocks are worth their time: only race reports use them.
bool LooksForRaces();

}  // namespace commpool::internal::emulated_torch
