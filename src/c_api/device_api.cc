// The C ABI: the memory of a device, beyond one pool.
#include "commpool/commpool.h"
#include "src/c_api/boundary.h"
#include "src/c_api/process_runtime.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

namespace {

template <typename Body>
commpool_status WithRuntime(Body body) {
  return Guarded([&]() -> Status {
    Result<Runtime*> runtime = ProcessRuntime();
    if (!runtime.ok()) return runtime.status();
    Status status = (*runtime)->RefuseForkedChild();
    if (!status.ok()) return status;
    return body(**runtime);
  });
}

}  // namespace

commpool_status commpool_set_device_limit(int device, uint64_t bytes) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    Result<std::shared_ptr<DeviceState>> state = runtime.devices().Get(device);
    if (!state.ok()) return state.status();
    (*state)->account().SetLimit(bytes);
    return Status();
  });
}

void commpool_holder_options_init(commpool_holder_options* options) {
  if (options == nullptr) return;
  *options = {sizeof(*options), "other", nullptr, nullptr, nullptr};
}

commpool_status commpool_add_holder(const commpool_holder_options* options, commpool_holder* holder) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    if (options == nullptr || holder == nullptr) {
      return Status(StatusCode::kInvalidArgument, "options or the output pointer is null");
    }
    if (options->struct_bytes != sizeof(*options)) {
      return Status(StatusCode::kInvalidArgument,
                    "holder options: call commpool_holder_options_init before setting options");
    }
    *holder = runtime.holders().Add(*options);
    return Status();
  });
}

commpool_status commpool_remove_holder(commpool_holder holder) {
  return WithRuntime([&](Runtime& runtime) { return runtime.holders().Remove(holder); });
}
