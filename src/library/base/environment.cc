#include "src/library/base/environment.h"

#include <sys/auxv.h>

#include <cstdlib>

namespace commpool::internal {

const Environment& Environment::Get() {
  static const auto* const environment = new Environment();  // not destroyed: destructors of static objects call us
  return *environment;
}

bool Environment::Trusted() { return getauxval(AT_SECURE) == 0; }

std::string Environment::Variable(const char* name) {
  const char* const value = Trusted() ? std::getenv(name) : nullptr;
  return value == nullptr ? "" : value;
}

std::string Environment::FirstOf(std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    if (std::string value = Variable(name); !value.empty()) return value;
  }
  return "";
}

}  // namespace commpool::internal
