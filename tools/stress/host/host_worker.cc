// One run of `commpool_stress host` in its own process: a program, in whose calls the nth thread start or descriptor
// fails.
//
//   host_worker PROGRAM RESOURCE NTH [place]      NTH 0 counts; place: the stack of the fault goes to stderr
//
// Writes "violation: ..." lines, then "COUNT OUTCOME CALL". Exits with 0 where there is no violation.
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include "tools/stress/host/host_faults.h"
#include "tools/stress/host/host_programs.h"

namespace {

using commpool::cli::HostFaults;
using commpool::cli::HostMachine;
using commpool::cli::HostResource;
using commpool::cli::Place;
namespace internal = commpool::internal;

const std::map<std::string, void (*)(HostMachine&)> kPrograms = {{"fixed", commpool::cli::RunFixed},
                                                                 {"expandable", commpool::cli::RunExpandable},
                                                                 {"symmetric", commpool::cli::RunSymmetric}};
const std::map<std::string, HostResource> kResources = {{"thread", HostResource::kThread},
                                                        {"descriptor", HostResource::kDescriptor}};

int Run(void (*program)(HostMachine&), HostResource resource, uint64_t nth, Place place) {
  setenv("COMMPOOL_EMULATOR", "devices=2,memory=512MiB,granularity=64KiB,races=no,nccl_timeout_ms=5000", 0);
  setenv("COMMPOOL_LOG", "error", 0);
  commpool::Result<internal::LoaderOptions> options =
      internal::LoaderOptionsFromEnvironment(internal::DriverChoice::kEmulated);
  options.value().choice = internal::DriverChoice::kEmulated;
  HostMachine machine(internal::LoadDriver(*options).value(), 2);
  HostFaults::Plan(resource, nth, place);
  try {
    program(machine);
  } catch (const std::exception& error) {
    machine.Violate(error.what());
  }
  const std::vector<std::string> violations = machine.Finish();
  for (const std::string& violation : violations) std::cout << "violation: " << violation << '\n';
  std::cout << HostFaults::count() << ' ' << machine.outcome() << ' ' << machine.struck() << std::endl;
  return violations.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || argc > 5 || !kPrograms.contains(argv[1]) || !kResources.contains(argv[2])) {
    std::cerr << "host_worker PROGRAM RESOURCE NTH: of commpool_stress host\n";
    return 4;
  }
  // Leaves the clean-up to the process's end: no later run sees what this one left in the library.
  const Place place = argc == 5 ? Place::kTold : Place::kUntold;
  std::_Exit(Run(kPrograms.at(argv[1]), kResources.at(argv[2]), std::strtoull(argv[3], nullptr, 10), place));
}
