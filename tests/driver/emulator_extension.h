// Finds functions of src/emulator/extension.h by name. A direct use would make the linker look for them.
//
//   COMMPOOL_EXTENSION(commpoolEmulatorNow)()     // null on hardware
#ifndef COMMPOOL_TESTS_DRIVER_EMULATOR_EXTENSION_H_
#define COMMPOOL_TESTS_DRIVER_EMULATOR_EXTENSION_H_

#include "src/emulator/extension.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {

template <typename Function>
Function* ExtensionFunction(const char* name) {
  return reinterpret_cast<Function*>(SharedDriver()->extension(name));
}

}  // namespace commpool::internal::testing

#define COMMPOOL_EXTENSION(name) (::commpool::internal::testing::ExtensionFunction<decltype(name)>(#name))

#endif  // COMMPOOL_TESTS_DRIVER_EMULATOR_EXTENSION_H_
