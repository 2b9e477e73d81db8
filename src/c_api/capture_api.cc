// The C ABI: stream capture.
#include "commpool/commpool.h"
#include "src/c_api/boundary.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

commpool_status commpool_capture_begin(commpool_pool pool, CUstream_st* stream, commpool_capture* capture) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    if (capture == nullptr) return NullOutput();
    return Store(runtime.BeginCapture(pool, stream), capture);
  });
}

commpool_status commpool_capture_end(commpool_capture capture) {
  return WithRuntime([&](Runtime& runtime) { return runtime.EndCapture(capture); });
}
