#include "src/registration/nccl_settings.h"

#include <cstdlib>
#include <string>

namespace commpool::internal {

namespace {

// As NCCL reads it: by its number, and by the default where it is empty.
bool IsZero(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return false;
  char* end = nullptr;
  return std::strtoll(text, &end, 0) == 0 && end != text;
}

}  // namespace

Status CheckNcclRegistersNothingUnseen() {
  for (const char* const variable : {"NCCL_LOCAL_REGISTER", "NCCL_GRAPH_REGISTER"}) {
    if (IsZero(variable)) continue;
    return Status(StatusCode::kFailedPrecondition,
                  std::string(variable) +
                      " is not 0, so captured collectives may name memory that NCCL registered by "
                      "itself: set NCCL_LOCAL_REGISTER=0 and NCCL_GRAPH_REGISTER=0 on all ranks, "
                      "before NCCL is used");
  }
  return Status();
}

}  // namespace commpool::internal
