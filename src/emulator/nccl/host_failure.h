// Turns a host without memory or threads into NCCL's error.
#ifndef COMMPOOL_SRC_EMULATOR_NCCL_HOST_FAILURE_H_
#define COMMPOOL_SRC_EMULATOR_NCCL_HOST_FAILURE_H_

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

#endif  // COMMPOOL_SRC_EMULATOR_NCCL_HOST_FAILURE_H_
