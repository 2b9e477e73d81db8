// NCCL's errors as exceptions. Any thread.
#pragma once

#include <nccl.h>

#include <stdexcept>
#include <string>

namespace examples {

// Throws where a call fails.
inline void Check(ncclResult_t result) {
  if (result != ncclSuccess)
    throw std::runtime_error(std::string("an NCCL call failed: ") + ncclGetErrorString(result));
}

}  // namespace examples
