#include "src/base/host_failure.h"

#include <new>
#include <string>
#include <system_error>

namespace commpool::internal {

Status Described(const std::exception& exception) noexcept {
  if (dynamic_cast<const std::bad_alloc*>(&exception) != nullptr) {
    return Status(StatusCode::kOutOfMemory, kNoHostMemory);
  }
  if (dynamic_cast<const std::system_error*>(&exception) != nullptr) {
    return Status(StatusCode::kOutOfMemory, kNoHostThread);
  }
  try {
    return Status(StatusCode::kInternal, std::string("exception: ") + exception.what());
  } catch (...) {
    return Status(StatusCode::kOutOfMemory, kNoHostMemory);
  }
}

}  // namespace commpool::internal
