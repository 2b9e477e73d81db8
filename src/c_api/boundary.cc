#include "src/c_api/boundary.h"

#include <array>
#include <cstring>

#include "src/base/of_this_thread.h"
#include "src/base/user_function.h"

namespace commpool::internal {

namespace {

struct LastError {};

// For calls of a thread's last destructors, which come after the text has gone: has no destructor, and is cut short.
thread_local constinit std::array<char, 512> late_error{};

std::string* LastErrorText() { return OfThisThread<std::string, LastError>(); }

}  // namespace

commpool_status Report(const Status& status) {
  if (std::string* const text = LastErrorText()) {
    *text = status.message();
  } else {
    std::strncpy(late_error.data(), status.message().c_str(), late_error.size() - 1);
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

const char* LastErrorMessage() {
  const std::string* const text = LastErrorText();
  return text == nullptr ? late_error.data() : text->c_str();
}

}  // namespace commpool::internal
