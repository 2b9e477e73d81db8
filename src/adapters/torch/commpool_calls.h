// The functions of libcommpool, found at run time. So the router links only PyTorch's c10, and uses whichever
// libcommpool the process has open already.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_COMMPOOL_CALLS_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_COMMPOOL_CALLS_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "commpool/commpool.h"

#define COMMPOOL_TORCH_CALLS(CALL) \
  CALL(last_error)                 \
  CALL(pool_allocate)              \
  CALL(allocate_in_scope)          \
  CALL(free)                       \
  CALL(promise_stream)             \
  CALL(record_stream)              \
  CALL(block_of)                   \
  CALL(pool_blocks)                \
  CALL(pool_statistics)            \
  CALL(pool_reset_peaks)           \
  CALL(pools_trim)                 \
  CALL(pool_grant)                 \
  CALL(capture_begin)              \
  CALL(capture_end)                \
  CALL(set_device_limit)           \
  CALL(scope_begin)                \
  CALL(scope_end)                  \
  CALL(add_holder)

namespace commpool::torch_adapter {

struct CommpoolCalls {
#define COMMPOOL_TORCH_MEMBER(name) decltype(&::commpool_##name) name = nullptr;
  COMMPOOL_TORCH_CALLS(COMMPOOL_TORCH_MEMBER)
#undef COMMPOOL_TORCH_MEMBER
  const std::atomic<uint64_t>* open_scopes = nullptr;  // not 0 while a scope of the C ABI is open
};

// The table of the process. Its members are null until OpenCommpool succeeds.
inline constinit CommpoolCalls commpool_calls;
inline const CommpoolCalls& Commpool() { return commpool_calls; }

// Fills the table from the library at `path`. That library must have the minor version that the router was built with.
// Returns the reason if it cannot, else an empty text.
std::string OpenCommpool(const char* path);

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_COMMPOOL_CALLS_H_
