// Fixed pools and communicators: their segments register as local buffers. Segments that come later stay pending until
// the program says so, on the thread that owns the communicator: growth inside an allocation may not call NCCL (rule
// 1).
#ifndef COMMPOOL_SRC_POOL_GROWING_LOCAL_REGISTRAR_H_
#define COMMPOOL_SRC_POOL_GROWING_LOCAL_REGISTRAR_H_

#include <nccl.h>

#include <cstdint>

#include "commpool/status.h"
#include "src/pool/pool_parts.h"

namespace commpool::internal {

class LocalRegistrar {
 public:
  explicit LocalRegistrar(PoolParts& parts) : parts_(parts) {}

  Status RegisterWith(ncclComm_t communicator);
  // Returns the number of registrations made.
  Result<uint64_t> RegisterPending();
  Status Deregister(ncclComm_t communicator);

 private:
  PoolParts& parts_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_GROWING_LOCAL_REGISTRAR_H_
