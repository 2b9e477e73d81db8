// The C ABI: errors, the runtime and what its driver calls cost.
#include <algorithm>

#include "commpool/commpool.h"
#include "src/c_api/boundary.h"
#include "src/c_api/process_runtime.h"
#include "src/c_api/structs.h"
#include "src/driver/metering.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

namespace {

constexpr size_t kFirstDriverCallBytes = 24;  // of 0.1

Status Open(commpool_driver driver) {
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
  return Guarded([&]() -> Status {
    if (calls == nullptr && count == nullptr) {
      return Status(StatusCode::kInvalidArgument, "calls and count are null: there is nothing to answer");
    }
    if (calls != nullptr && entry_bytes < kFirstDriverCallBytes) {
      return Status(StatusCode::kInvalidArgument,
                    "entry_bytes is " + std::to_string(entry_bytes) + ": pass sizeof(commpool_driver_call)");
    }
    if (!DriverIsMeasured()) {
      return Status(StatusCode::kFailedPrecondition, "no driver call is measured: commpool_measure_driver comes first");
    }
    const std::vector<MeteredFunction> functions = MeteredFunctions();
    const size_t written = calls == nullptr ? 0 : std::min(capacity, functions.size());
    for (size_t index = 0; index < written; ++index) {
      const MeteredFunction& function = functions[index];
      const commpool_driver_call call = {function.name, function.calls, function.microseconds};
      WriteBytes(&call, sizeof(call), EntryAt(calls, entry_bytes, index), entry_bytes);
    }
    if (count != nullptr) *count = functions.size();
    return Status();
  });
}
