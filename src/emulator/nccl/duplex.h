// Two directions of a ring at a time.
#pragma once

#include <cstddef>

#include "commpool/status.h"
#include "src/library/base/socket.h"

namespace commpool::internal::emulated_nccl {

// Sends and receives at the same time: peers (two, or a ring) that all send first would block each other.
// kDeadlineExceeded where the deadline passes, kRemoteFailure where a peer closed.
Status SendAndReceive(Connection& to, const void* sent, size_t sent_bytes, Connection& from, void* received,
                      size_t received_bytes, Deadline deadline);

}  // namespace commpool::internal::emulated_nccl
