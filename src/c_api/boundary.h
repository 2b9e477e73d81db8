// The edge of the library: Status becomes a code and a thread's last message, and no exception passes.
#ifndef COMMPOOL_SRC_C_API_BOUNDARY_H_
#define COMMPOOL_SRC_C_API_BOUNDARY_H_

#include <memory>
#include <optional>

#include "commpool/commpool.h"
#include "commpool/status.h"
#include "src/base/host_failure.h"
#include "src/base/host_reserve.h"
#include "src/c_api/process_runtime.h"

namespace commpool::internal {

// Keeps the message for commpool_last_error and returns the code.
commpool_status Report(const Status& status) noexcept;

const char* LastErrorMessage();

// The same for the exception that is being handled.
commpool_status ReportException() noexcept;

inline Status NullOutput() { return Status(StatusCode::kInvalidArgument, "the output pointer is null"); }

// Runs `body`, which returns a Status; an exception is our bug or the host's memory running out, and becomes a code.
// For what needs no runtime; all else enters by the functions below. No body begins where the reserve is low: what it
// changes could not be ended.
template <typename Body>
commpool_status Guarded(Body body) noexcept {
  try {
    if (!HostReserve::Fill()) return Report(Status(StatusCode::kOutOfMemory, kNoHostMemory));
    const Status status = body();
    return status.ok() ? COMMPOOL_OK : Report(status);
  } catch (...) {
    return ReportException();
  }
}

// What functions of the program's that the library calls may call of it, where their kind says so.
enum class CallKind { kAny, kFree };

// OK unless this thread runs a function of the program's that the library has called, and that may not make the call.
Status RefuseUserFunction(CallKind call = CallKind::kAny);

// The one way into the library: opens the runtime where nobody has, refuses a forked child and a user's function, and
// runs `body(runtime)`.
template <typename Body>
commpool_status WithRuntime(Body body, CallKind call = CallKind::kAny) noexcept {
  return Guarded([&]() -> Status {
    Runtime* runtime = OpenedProcessRuntime();
    if (runtime == nullptr) {
      const Result<Runtime*> opened = ProcessRuntime();
      if (!opened.ok()) return opened.status();
      runtime = *opened;
    }
    Status status = runtime->RefuseForkedChild();
    if (status.ok()) status = RefuseUserFunction(call);
    if (!status.ok()) return status;
    const std::optional<RelaxedCapture> relaxed = runtime->Relax();
    return body(*runtime);
  });
}

// The same, with the pool of a handle.
template <typename Body>
commpool_status WithPool(commpool_pool handle, Body body) noexcept {
  return WithRuntime([&](Runtime& runtime) -> Status {
    Result<std::shared_ptr<Pool>> pool = runtime.pools().Find(handle);
    if (!pool.ok()) return pool.status();
    return body(**pool);
  });
}

// Writes a result's value, where there is one, to a caller's place.
template <typename Value, typename Output>
Status Store(const Result<Value>& result, Output* output) {
  if (result.ok()) *output = *result;
  return result.status();
}

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_C_API_BOUNDARY_H_
