#include "src/pool/segments/growth.h"

#include "src/base/host_failure.h"

namespace commpool::internal {

Status Grow(Growth& growth) {
  Status status = growth.Agree(Growth::Step::kMake, Attempt([&] { return growth.Make(); }));
  if (!status.ok()) return status;
  status = growth.Agree(Growth::Step::kPrepare, Attempt([&] { return growth.Prepare(); }));
  if (!status.ok()) {
    growth.Undo();
    return status;
  }
  growth.Adopt();
  return Status();
}

}  // namespace commpool::internal
