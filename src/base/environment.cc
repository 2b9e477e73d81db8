#include "src/base/environment.h"

#include <cstdlib>

namespace commpool::internal {

namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

const Environment& Environment::Get() {
  static const auto* const environment = new Environment{
      // not destroyed: destructors of static objects call us
      .driver = Variable("COMMPOOL_DRIVER"),
      .emulator_libraries = Variable("COMMPOOL_EMULATOR_LIBRARIES"),
      .nccl = Variable("COMMPOOL_NCCL"),
      .log_level = Variable("COMMPOOL_LOG"),
      .nccl_nvls_enable = Variable("NCCL_NVLS_ENABLE"),
      .configuration = Variable("COMMPOOL_CONF"),
      .interface = Variable("COMMPOOL_INTERFACE"),
  };
  return *environment;
}

}  // namespace commpool::internal
