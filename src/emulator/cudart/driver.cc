#include "src/emulator/cudart/driver.h"

#include "src/emulator/driver_library.h"

namespace commpool::internal::emulated_cudart {

namespace {

constexpr const char* kLibrary = "CUDA runtime";

DriverFunctions Load() {
  void* const library = FindDriverLibrary(kLibrary);
  DriverFunctions driver;
#define COMMPOOL_DRIVER_FUNCTION(name) \
  driver.name = reinterpret_cast<decltype(driver.name)>(FindDriverSymbol(kLibrary, library, COMMPOOL_TEXT(name)));
#include "src/emulator/cudart/driver_functions.inc"
#undef COMMPOOL_DRIVER_FUNCTION
  return driver;
}

}  // namespace

const DriverFunctions& Driver() {
  static const DriverFunctions driver = Load();
  return driver;
}

}  // namespace commpool::internal::emulated_cudart
