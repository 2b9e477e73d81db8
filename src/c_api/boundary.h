// The edge of the library: Status becomes a code and a thread's last message, and no exception passes.
#ifndef COMMPOOL_SRC_C_API_BOUNDARY_H_
#define COMMPOOL_SRC_C_API_BOUNDARY_H_

#include <exception>
#include <string>

#include "commpool/commpool.h"
#include "commpool/status.h"

namespace commpool::internal {

// Keeps the message for commpool_last_error and returns the code.
commpool_status Report(const Status& status);

const char* LastErrorMessage();

inline Status NullOutput() { return Status(StatusCode::kInvalidArgument, "the output pointer is null"); }

// Runs `body`, which returns a Status; an exception is our bug or the system's memory running out, and becomes a code.
template <typename Body>
commpool_status Guarded(Body body) noexcept {
  try {
    const Status status = body();
    return status.ok() ? COMMPOOL_OK : Report(status);
  } catch (const std::exception& exception) {
    return Report(Status(StatusCode::kInternal, std::string("exception: ") + exception.what()));
  } catch (...) {
    return Report(Status(StatusCode::kInternal, "unknown exception"));
  }
}

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_C_API_BOUNDARY_H_
