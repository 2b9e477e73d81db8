// The C ABI: errors and the runtime.
#include "commpool/commpool.h"
#include "src/c_api/boundary.h"
#include "src/c_api/process_runtime.h"

using namespace commpool;  // NOLINT: this file is the other side of that namespace

const char* commpool_last_error(void) { return LastErrorMessage(); }

commpool_status commpool_initialize(commpool_driver driver) {
  return Guarded([&]() -> Status {
    switch (driver) {
      case COMMPOOL_DRIVER_CUDA:
        return OpenProcessRuntime(DriverChoice::kCuda);
      case COMMPOOL_DRIVER_EMULATED:
        return OpenProcessRuntime(DriverChoice::kEmulated);
      case COMMPOOL_DRIVER_AUTO:
        return OpenProcessRuntime(DriverChoice::kAuto);
    }
    return Status(StatusCode::kInvalidArgument,
                  "driver " + std::to_string(driver) + " is none of CUDA, EMULATED and AUTO");
  });
}

const char* commpool_driver_description(void) {
  const Runtime* runtime = OpenedProcessRuntime();
  return runtime == nullptr ? "" : runtime->driver().description.c_str();
}
