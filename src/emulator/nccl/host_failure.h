// Turns a host without memory or threads into NCCL's error.
#pragma once

#include <nccl.h>

#include <new>
#include <system_error>

namespace commpool::internal::emulated_nccl {

// Returns what `work` returns; ncclSystemError if the host refuses memory or a thread.
template <typename Work>
ncclResult_t OrSystemError(Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return ncclSystemError;
  } catch (const std::system_error&) {
    return ncclSystemError;
  }
}

}  // namespace commpool::internal::emulated_nccl
