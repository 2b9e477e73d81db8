#include "src/c_api/boundary.h"

#include <array>
#include <cstring>
#include <exception>
#include <string>

#include "src/base/of_this_thread.h"
#include "src/base/user_function.h"

namespace commpool::internal {

namespace {

struct LastError {};

// For calls of a thread's last destructors, which come after the text has gone: has no destructor, and is cut short.
thread_local constinit std::array<char, 512> late_error{};
// A sentence that needs no memory, where it is the last; else null.
thread_local constinit const char* last_host_error = nullptr;

constexpr const char* kHostMemoryError =
    "the host is out of memory: commpool could not get what its books need (not the device's memory); nothing has "
    "changed, free host memory and call again";
constexpr const char* kHostThreadError =
    "the host refused commpool a thread: a limit on threads (ulimit -u, the cgroup's pids.max) or on memory is "
    "reached; raise it and call again";

std::string* LastErrorText() { return OfThisThread<std::string, LastError>(); }

}  // namespace

commpool_status Report(const Status& status) noexcept {
  last_host_error = nullptr;
  const std::string& message = status.message();
  if (message == kNoHostMemory) last_host_error = kHostMemoryError;
  if (message == kNoHostThread) last_host_error = kHostThreadError;
  try {
    if (std::string* const text = LastErrorText()) {
      *text = message;
    } else {
      std::strncpy(late_error.data(), message.c_str(), late_error.size() - 1);
    }
  } catch (...) {  // the sentence is lost, the code is not
    last_host_error = kHostMemoryError;
  }
  return static_cast<commpool_status>(status.code());
}

Status RefuseUserFunction() {
  const char* const name = UserFunction::Running();
  if (name == nullptr) return Status();
  return Status(StatusCode::kFailedPrecondition,
                std::string("commpool was called by ") + name +
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
  if (last_host_error != nullptr) return last_host_error;
  const std::string* const text = LastErrorText();
  return text == nullptr ? late_error.data() : text->c_str();
}

}  // namespace commpool::internal
