#include "src/base/environment.h"

#include <cstdlib>

namespace commpool::internal {

const Environment& Environment::Get() {
  static const auto* const environment = new Environment();  // not destroyed: destructors of static objects call us
  return *environment;
}

std::string Environment::Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace commpool::internal
