// Every environment variable that commpool reads, read once at first use. A process with more rights than the user who
// started it (setuid, capabilities of its file) reads none, because some variables name libraries to open.
#ifndef COMMPOOL_SRC_BASE_ENVIRONMENT_H_
#define COMMPOOL_SRC_BASE_ENVIRONMENT_H_

#include <string>

namespace commpool::internal {

struct Environment {
  static const Environment& Get();
  // Whether this process has no more rights than the user who set the variables.
  static bool Trusted();
  // Empty where the variable is not set or not trusted.
  static std::string Variable(const char* name);

  const std::string driver = Variable("COMMPOOL_DRIVER");  // cuda, emulated or auto
  // The folder of the emulator's two libraries.
  const std::string emulator_libraries = Variable("COMMPOOL_EMULATOR_LIBRARIES");
  const std::string nccl = Variable("COMMPOOL_NCCL");                 // file of the NCCL library
  const std::string log_level = Variable("COMMPOOL_LOG");             // error, warning (default), info or debug
  const std::string nccl_nvls_enable = Variable("NCCL_NVLS_ENABLE");  // NCCL's own: 0 switches multicast off
  const std::string configuration = Variable("COMMPOOL_CONF");        // defaults of pools (src/pool/settings)
  const std::string runtime_directory = Variable("XDG_RUNTIME_DIR");  // where sockets of this user may lie
  const std::string interface = Variable("COMMPOOL_INTERFACE");       // network interface or address of agreements
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_ENVIRONMENT_H_
