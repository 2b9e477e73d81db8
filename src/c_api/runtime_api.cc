// The C ABI: errors, the runtime and what its driver calls cost.
#include "commpool/commpool.h"
#include "src/base/try.h"
#include "src/c_api/boundary.h"
#include "src/c_api/process_runtime.h"
#include "src/c_api/structs.h"
#include "src/driver/metering.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

namespace {

Status Open(commpool_driver driver) {
  DriverChoice choice = DriverChoice::kCuda;
  Status status = ReadWord("driver", driver, {"CUDA", "EMULATED", "AUTO"}, &choice);
  return status.ok() ? OpenProcessRuntime(choice) : status;
}

}  // namespace

const char* commpool_last_error(void) { return LastErrorMessage(); }

int commpool_version(void) { return COMMPOOL_VERSION; }

commpool_status commpool_initialize(commpool_driver driver) {
  return Guarded([&] {
    Status status = RefuseUserFunction();
    return status.ok() ? Open(driver) : status;
  });
}

const char* commpool_driver_description(void) {
  const Runtime* runtime = OpenedProcessRuntime();
  return runtime == nullptr ? "" : runtime->driver().description.c_str();
}

commpool_status commpool_measure_driver(void) {
  return Guarded([] {
    Status status = RefuseUserFunction();
    return status.ok() ? MeasureDriver() : status;
  });
}

commpool_status commpool_driver_calls(commpool_driver_call* calls, size_t entry_bytes, size_t capacity, size_t* count) {
  const EntryArray<commpool_driver_call> output = {calls, entry_bytes, capacity, count};
  return Guarded([&]() -> Status {
    COMMPOOL_TRY(output.Check("driver_call"));
    if (!DriverIsMeasured()) {
      return Status(StatusCode::kFailedPrecondition, "no driver call is measured: commpool_measure_driver comes first");
    }
    output.Write(MeteredFunctions(), [](const MeteredFunction& function) {
      return commpool_driver_call{function.name, function.calls, function.microseconds};
    });
    return Status();
  });
}
