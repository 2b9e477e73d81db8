// Registrations that a call gave up while a nonblocking communicator went on with them: what NCCL may still make of a
// segment. A segment stays mapped until each of them was ended, or its communicator is.
//
// Not thread-safe: the lock of the set beside it guards it. It calls nothing.
#ifndef COMMPOOL_SRC_REGISTRATION_UNFINISHED_REGISTRATIONS_H_
#define COMMPOOL_SRC_REGISTRATION_UNFINISHED_REGISTRATIONS_H_

#include <cstdint>

#include "commpool/status.h"
#include "src/base/host_reserve.h"
#include "src/registration/communicator.h"
#include "src/registration/registered_range.h"

namespace commpool::internal {

struct UnfinishedRegistration {
  Communicator communicator;
  uint32_t segment = 0;  // its number in the pool
  UnfinishedRange range = {};
};

class UnfinishedRegistrations {
 public:
  void Add(UnfinishedRegistration registration);
  // Those of a communicator, oldest first: the caller ends them, or forgets them with it.
  ReservedVector<UnfinishedRegistration> Take(ncclComm_t communicator);

  bool AnyWith(ncclComm_t communicator) const;
  // kDeadlineExceeded, with what to do, where there is one of the segment.
  Status CheckNoneOf(uint32_t segment) const;

 private:
  ReservedVector<UnfinishedRegistration> registrations_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_UNFINISHED_REGISTRATIONS_H_
