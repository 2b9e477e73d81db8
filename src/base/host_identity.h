// Tells whether two processes are on one host, so that a loopback address means the same place for both. Any thread.
#ifndef COMMPOOL_SRC_BASE_HOST_IDENTITY_H_
#define COMMPOOL_SRC_BASE_HOST_IDENTITY_H_

#include <cstdint>

namespace commpool::internal {

// Equal for processes of one boot and one network namespace, different otherwise. The host's name is not enough:
// containers of one machine may share it, and have loopbacks of their own.
uint64_t HostIdentity();

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_HOST_IDENTITY_H_
