// The user backing: a program's own functions, of PyTorch's pluggable signature with a context last.
//
// They are called outside every lock, with the device's context current and a null stream; an exception that leaves one
// becomes a Status. Peer access is theirs to arrange. What they return must be memory that the device can use, aligned
// to 512 bytes: checked as far as the driver tells.
#ifndef COMMPOOL_SRC_BACKING_USER_BACKING_H_
#define COMMPOOL_SRC_BACKING_USER_BACKING_H_

#include <memory>

#include "commpool/commpool.h"
#include "commpool/status.h"
#include "src/backing/backing.h"

namespace commpool::internal {

struct UserAllocator {
  commpool_user_allocate allocate = nullptr;
  commpool_user_free free = nullptr;
  void* context = nullptr;
};

// kInvalidArgument where one of the functions is null. REQUIRES: an existing device. The driver and the user's context
// must outlive the backing and its segments.
Result<std::unique_ptr<Backing>> MakeUserBacking(const Driver& driver, const Placement& placement,
                                                 const UserAllocator& user);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_USER_BACKING_H_
