// Every environment variable that commpool reads, read once at first use. A process with more rights than the user who
// started it (setuid, capabilities of its file) reads none, because some variables name libraries to open.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

namespace commpool::internal {

struct Environment {
  static const Environment& Get();
  // Whether this process has no more rights than the user who set the variables.
  static bool Trusted();
  // Empty where the variable is not set or not trusted.
  static std::string Variable(const char* name);
  // A sentence for each variable of the process that begins like ours and is none: a slip would be ignored in silence.
  static std::vector<std::string> Slips();
  // The first variable that is set.
  static std::string FirstOf(std::initializer_list<const char*> names);

  const std::string driver = Variable("COMMPOOL_DRIVER");  // cuda, emulated or auto
  // The folder of the emulator's two libraries.
  const std::string emulator_libraries = Variable("COMMPOOL_EMULATOR_LIBRARIES");
  const std::string nccl = Variable("COMMPOOL_NCCL");                  // file of the NCCL library
  const std::string log_level = Variable("COMMPOOL_LOG");              // error, warning (default), info or debug
  const std::string nccl_nvls_enable = Variable("NCCL_NVLS_ENABLE");   // NCCL's own: 0 switches multicast off
  const std::string configuration = Variable("COMMPOOL_CONF");         // defaults of pools (src/library/pool/settings)
  const std::string sockets = Variable("COMMPOOL_SOCKETS");            // folder of the sockets of shared pools
  const std::string runtime_directory = Variable("XDG_RUNTIME_DIR");   // where they lie else, if it is this user's
  const std::string interface = Variable("COMMPOOL_INTERFACE");        // network interface or address of agreements
  const std::string record = Variable("COMMPOOL_RECORD");              // folder of recordings
  const std::string record_limit = Variable("COMMPOOL_RECORD_LIMIT");  // bytes of a recording
  const std::string record_stacks = Variable("COMMPOOL_RECORD_STACKS");  // python or native: with stacks
  // The process's place, as launchers say it; empty where none does.
  const std::string rank = FirstOf({"OMPI_COMM_WORLD_RANK", "RANK", "PMI_RANK", "SLURM_PROCID"});
  const std::string ranks = FirstOf({"OMPI_COMM_WORLD_SIZE", "WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"});
};

}  // namespace commpool::internal
