// The C ABI: the memory of a device, beyond one pool.
#include "commpool/commpool.h"
#include "src/base/try.h"
#include "src/c_api/boundary.h"
#include "src/c_api/structs.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

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
