// From what a pool asks for to a backing: refuses impossible combinations with the reason.
#ifndef COMMPOOL_SRC_BACKING_BACKING_FACTORY_H_
#define COMMPOOL_SRC_BACKING_BACKING_FACTORY_H_

#include <memory>

#include "commpool/status.h"
#include "src/backing/backing.h"
#include "src/backing/user_backing.h"

namespace commpool {

enum class BackingKind { kVmm, kCuda, kNccl, kUser };

const char* Name(BackingKind kind);

struct BackingRequest {
  BackingKind kind = BackingKind::kVmm;
  Placement placement;
  UserAllocator user;  // of kUser
};

// Whether such a backing can be made here and, where not, why. Makes nothing.
Capability CanMakeBacking(const Driver& driver, BackingKind kind, const Placement& placement);

// kInvalidArgument for a device or NUMA node that there is not and for missing user functions; kNotSupported, with the
// reason, for what this driver, device or NCCL cannot do. The driver must outlive the backing.
Result<std::unique_ptr<Backing>> MakeBacking(const Driver& driver, const BackingRequest& request);

}  // namespace commpool

#endif  // COMMPOOL_SRC_BACKING_BACKING_FACTORY_H_
