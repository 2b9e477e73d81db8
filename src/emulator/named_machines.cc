#include "src/emulator/named_machines.h"

namespace commpool::internal::emulator {

std::span<const NamedMachine> NamedMachines() {
  static constexpr NamedMachine kMachines[] = {
      {"four", ""},
      {"one", "devices=1,numa_nodes=1"},
      {"two", "devices=2"},
      {"eight", "devices=8"},
      {"islands", "devices=8,links=islands"},
      {"grace", "devices=4,numa_nodes=2,coherent=yes"},
      {"apart", "devices=4,links=none,multicast=no"},
  };
  return kMachines;
}

}  // namespace commpool::internal::emulator
