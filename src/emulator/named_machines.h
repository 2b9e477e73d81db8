// The machines that COMMPOOL_EMULATOR knows by name: what each declares beside the defaults.
//
// They differ in what programs choose by: which GPUs reach each other, which host node is nearest, whether CPU and GPU
// share one coherent memory. Tests run what depends on that on each of them (tests/driver/topology_test.cc).
#pragma once

#include <span>

namespace commpool::internal::emulator {

struct NamedMachine {
  const char* name;
  const char* keys;  // as in COMMPOOL_EMULATOR, which may declare them otherwise
};

// The first is the machine of those who name none: it declares nothing.
std::span<const NamedMachine> NamedMachines();

}  // namespace commpool::internal::emulator
