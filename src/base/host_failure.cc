#include "src/base/host_failure.h"

#include <string>

namespace commpool::internal {

Status Described(const std::exception& exception) noexcept {
  try {
    return Status(StatusCode::kInternal, std::string("exception: ") + exception.what());
  } catch (...) {
    return Status(StatusCode::kOutOfMemory, kNoHostMemory);
  }
}

}  // namespace commpool::internal
