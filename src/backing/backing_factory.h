// From what a pool asks for to a backing: refuses impossible combinations with the reason. Any thread.
#ifndef COMMPOOL_SRC_BACKING_BACKING_FACTORY_H_
#define COMMPOOL_SRC_BACKING_BACKING_FACTORY_H_

#include <memory>

#include "commpool/status.h"
#include "src/backing/backing.h"
#include "src/backing/backing_row.h"
#include "src/backing/backing_table.h"

namespace commpool::internal {

// What such a backing could do here, asked without making one: for `commpool info`.
struct BackingDescription {
  Capability make;
  Capability register_local;   // of what it makes, with NCCL
  Capability register_window;  // likewise
};
BackingDescription DescribeBacking(const Driver& driver, BackingKind kind, const Placement& placement);

// kInvalidArgument for a device or NUMA node that there is not, for a host NUMA node with a backing of device memory
// and for missing user functions; kNotSupported, with the reason, for what this driver, device or NCCL cannot do. The
// driver must outlive the backing and its segments.
Result<std::unique_ptr<Backing>> MakeBacking(const Driver& driver, const BackingRequest& request);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_BACKING_FACTORY_H_
