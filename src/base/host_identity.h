// Whether two processes are on one host: whether an address of loopback is the same place for both. Any thread.
#ifndef COMMPOOL_SRC_BASE_HOST_IDENTITY_H_
#define COMMPOOL_SRC_BASE_HOST_IDENTITY_H_

#include <cstdint>

namespace commpool::internal {

// Equal in processes of one boot and one network namespace, and different otherwise: containers of one machine may
// share its name, and do not share its loopback.
uint64_t HostIdentity();

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_HOST_IDENTITY_H_
