#include "src/c_api/boundary.h"

#include <array>
#include <cstring>
#include <string>

#include "src/base/of_this_thread.h"
#include "src/base/user_function.h"

namespace commpool::internal {

namespace {

struct LastError {};

// A thread's last destructors may still call us, after the thread's message string is gone. This buffer has no
// destructor; it cuts long messages.
thread_local constinit std::array<char, 512> late_error{};

constexpr const char* kHostMemoryError =
    "the host is out of memory: commpool could not get what its books need (not the device's memory); nothing has "
    "changed, free host memory and call again";
constexpr const char* kHostThreadError =
    "the host refused commpool a thread: a limit on threads (ulimit -u, the cgroup's pids.max) or on memory is "
    "reached; raise it and call again";

const char* SentenceOf(const Status& status) {
  if (status.message() == kNoHostMemory) return kHostMemoryError;
  return status.message() == kNoHostThread ? kHostThreadError : status.message().c_str();
}

}  // namespace

commpool_status Report(const Status& status) noexcept {
  if (Status* const last = OfThisThread<Status, LastError>()) {
    *last = status;
  } else {
    std::strncpy(late_error.data(), SentenceOf(status), late_error.size() - 1);
  }
  return static_cast<commpool_status>(status.code());
}

Status RefuseUserFunction(CallKind call) {
  const UserFunctionKind* const running = UserFunction::Running();
  if (running == nullptr || (call == CallKind::kFree && running->may_free)) return Status();
  return Status(StatusCode::kFailedPrecondition,
                std::string("commpool was called by ") + running->name +
                    ", which it may not be: the call that runs this function holds what this one would wait for. Take "
                    "the memory from CUDA or another allocator");
}

commpool_status ReportException() noexcept {
  try {
    return Report(Attempt([]() -> Status { throw; }));
  } catch (...) {
    return Report(Status(StatusCode::kInternal, "an exception"));
  }
}

const char* LastErrorMessage() {
  const Status* const last = OfThisThread<Status, LastError>();
  return last == nullptr ? late_error.data() : SentenceOf(*last);
}

}  // namespace commpool::internal
