#include "src/c_api/boundary.h"

namespace commpool::internal {

namespace {

thread_local std::string last_error;

}  // namespace

commpool_status Report(const Status& status) {
  last_error = status.message();
  return static_cast<commpool_status>(status.code());
}

const char* LastErrorMessage() { return last_error.c_str(); }

}  // namespace commpool::internal
