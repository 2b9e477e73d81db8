// The C ABI: stream capture.
#include "commpool/commpool.h"
#include "src/c_api/boundary.h"
#include "src/c_api/process_runtime.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

commpool_status commpool_capture_begin(commpool_pool pool, CUstream_st* stream, commpool_capture* capture) {
  return Guarded([&]() -> Status {
    if (capture == nullptr) return NullOutput();
    Result<Runtime*> runtime = ProcessRuntime();
    if (!runtime.ok()) return runtime.status();
    Result<CaptureHandle> begun = (*runtime)->BeginCapture(pool, stream);
    if (!begun.ok()) return begun.status();
    *capture = *begun;
    return Status();
  });
}

commpool_status commpool_capture_end(commpool_capture capture) {
  return Guarded([&]() -> Status {
    Result<Runtime*> runtime = ProcessRuntime();
    if (!runtime.ok()) return runtime.status();
    return (*runtime)->EndCapture(capture);
  });
}
