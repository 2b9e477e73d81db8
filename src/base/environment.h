// Every environment variable that commpool reads, read once at first use.
#ifndef COMMPOOL_SRC_BASE_ENVIRONMENT_H_
#define COMMPOOL_SRC_BASE_ENVIRONMENT_H_

#include <string>

namespace commpool::internal {

struct Environment {
  const std::string driver;              // COMMPOOL_DRIVER: cuda, emulated or auto
  const std::string emulator_libraries;  // COMMPOOL_EMULATOR_LIBRARIES: folder of the emulator's two libraries
  const std::string nccl;                // COMMPOOL_NCCL: file of the NCCL library
  const std::string log_level;           // COMMPOOL_LOG: error, warning (default), info or debug
  const std::string nccl_nvls_enable;    // NCCL_NVLS_ENABLE, NCCL's own: 0 switches multicast off
  const std::string configuration;       // COMMPOOL_CONF: defaults of pools (src/pool/settings)
  const std::string interface;           // COMMPOOL_INTERFACE: network interface or address of the agreement channel

  static const Environment& Get();
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_ENVIRONMENT_H_
