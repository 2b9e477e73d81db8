// Finds functions of src/emulator/extension.h by name. A direct use would make the linker look for them.
//
//   COMMPOOL_EXTENSION(commpoolEmulatorNow)()     // null on hardware
#pragma once

#include "src/emulator/extension.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {

template <typename Function>
Function* ExtensionFunction(const char* name) {
  return reinterpret_cast<Function*>(SharedDriver()->extension(name));
}

}  // namespace commpool::internal::testing

#define COMMPOOL_EXTENSION(name) (::commpool::internal::testing::ExtensionFunction<decltype(name)>(#name))
