// The emulated NCCL notes here whether NVLink multicast serves its windows (src/emulator/extension.h).
#include <cstdio>

#include "src/emulator/cuda/api.h"

using namespace commpool::internal::emulator;  // NOLINT: C on the outside

void commpoolEmulatorNoteNvls(CUdeviceptr address, size_t bytes, const char* reason) {
  Machine& machine = Machine::Get();
  const std::lock_guard<std::mutex> lock(machine.mutex);
  if (bytes == 0) {
    machine.nvls.erase(address);
  } else {
    machine.nvls[address] = {bytes, reason == nullptr ? "" : reason};
  }
}

int commpoolEmulatorNvls(CUdeviceptr address, char* reason, size_t capacity) {
  Machine& machine = Machine::Get();
  const std::lock_guard<std::mutex> lock(machine.mutex);
  auto found = machine.nvls.upper_bound(address);
  if (found == machine.nvls.begin()) return -1;
  --found;
  if (address - found->first >= found->second.bytes) return -1;
  if (reason != nullptr && capacity > 0) std::snprintf(reason, capacity, "%s", found->second.reason.c_str());
  return found->second.reason.empty() ? 1 : 0;
}
