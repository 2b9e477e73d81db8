// The C ABI: errors, the runtime, the configuration in force, the cost of driver calls, and the memory of devices
// beyond one pool.
#include <memory>
#include <utility>
#include <vector>

#include "commpool/commpool.h"
#include "src/base/of_this_thread.h"
#include "src/base/try.h"
#include "src/c_api/boundary.h"
#include "src/c_api/structs.h"
#include "src/driver/metering.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

namespace {

Status Open(int32_t driver) {
  DriverChoice choice = DriverChoice::kCuda;
  Status status = ReadWord("driver", driver, {"CUDA", "EMULATED", "AUTO"}, &choice);
  return status.ok() ? OpenProcessRuntime(choice) : status;
}

struct LastLines {};  // tags the thread's last answer, which owns the texts

Status Write(std::vector<SettingLine> lines, const EntryArray<commpool_setting>& output) {
  COMMPOOL_TRY(output.Check("setting"));
  auto* const last = OfThisThread<std::vector<SettingLine>, LastLines>();
  if (last == nullptr) {
    return Status(StatusCode::kFailedPrecondition, "the thread is ending, and keeps no text any more");
  }
  *last = std::move(lines);
  output.Write(*last, [](const SettingLine& line) {
    return commpool_setting{line.pool.c_str(), line.key.c_str(), line.value.c_str(), line.source.c_str()};
  });
  return Status();
}

}  // namespace

const char* commpool_last_error(void) { return LastErrorMessage(); }

int commpool_version(void) { return COMMPOOL_VERSION; }

commpool_status commpool_initialize(commpool_driver driver) {
  return Guarded([&] {
    Status status = RefuseUserFunction();
    return status.ok() ? Open(NumberOf(driver)) : status;
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

commpool_status commpool_configuration(commpool_pool pool, commpool_setting* settings, size_t entry_bytes,
                                       size_t capacity, size_t* count) {
  const EntryArray<commpool_setting> output = {settings, entry_bytes, capacity, count};
  if (pool != 0) {
    return WithPool(pool, [&](Pool& found) { return Write(DescribePool(found.configuration()), output); });
  }
  return Guarded([&]() -> Status {
    const Settings said = COMMPOOL_TRY(SettingsFromEnvironment());
    return Write(said.Describe(), output);
  });
}

commpool_status commpool_set_device_limit(int device, uint64_t bytes) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    std::shared_ptr<DeviceState> state = COMMPOOL_TRY(runtime.devices().Get(device));
    state->account().SetLimit(bytes);
    return Status();
  });
}

commpool_status commpool_add_holder(const commpool_holder_options* options, commpool_holder* holder) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    if (options == nullptr || holder == nullptr) {
      return Status(StatusCode::kInvalidArgument, "options or the output pointer is null");
    }
    Status status = CheckStructBytes("holder_options", options->struct_bytes, sizeof(*options));
    if (status.ok()) *holder = runtime.holders().Add(*options);
    return status;
  });
}

commpool_status commpool_remove_holder(commpool_holder holder) {
  return WithRuntime([&](Runtime& runtime) { return runtime.holders().Remove(holder); });
}
