#include "src/pool/segments/growth.h"

namespace commpool::internal {

Status Grow(Growth& growth) {
  Status status = growth.Agree(Growth::Step::kMake, growth.Make());
  if (!status.ok()) return status;
  status = growth.Agree(Growth::Step::kPrepare, growth.Prepare());
  if (!status.ok()) {
    growth.Undo();
    return status;
  }
  growth.Adopt();
  return Status();
}

}  // namespace commpool::internal
