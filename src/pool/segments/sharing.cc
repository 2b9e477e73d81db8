// Which memory other processes may map.
#include <string>

#include "src/base/try.h"
#include "src/pool/segments/segment_store.h"

namespace commpool::internal {

namespace {

// A process that maps memory keeps using it, so the memory has to stay where it is until its block is freed.
Status CheckStays(const PoolConfiguration& configuration) {
  if (configuration.symmetric()) {
    return Status(StatusCode::kNotSupported,
                  "a symmetric pool's memory goes as all its ranks agree, and importers of one rank have no say: "
                  "processes of its communicator reach it through windows");
  }
  if (configuration.mode == Mode::kExpandable) {
    return Status(StatusCode::kNotSupported, "an expandable pool moves its pages: share memory of a fixed pool");
  }
  return Status();
}

}  // namespace

Result<SegmentStore::Shared> SegmentStore::Share(CUdeviceptr address) {
  MutexLock growth(growth_);  // nobody sleeps, or releases the segment, meanwhile
  COMMPOOL_TRY(basis_.CheckAwake());
  COMMPOOL_TRY(basis_.Named(CheckStays(basis_.configuration).under("share")));
  const Result<commpool_block> block = blocks_.Find(address);
  if (!block.ok()) return basis_.Named(block.status().under("share"));
  if (!blocks_.Share(reinterpret_cast<CUdeviceptr>(block->pointer))) {
    return basis_.Named(Status(StatusCode::kNotFound, "share: the block was freed"));
  }
  Segment& segment = Get(static_cast<engine::SegmentIndex>(block->segment));
  Result<int> descriptor = segment.Descriptor();
  if (!descriptor.ok()) return basis_.Named(descriptor.status().under("share"));
  return Shared{segment.address(), segment.bytes(), *descriptor};
}

Status SegmentStore::CheckNoneShared() const {
  if (!blocks_.SharesAny()) return Status();
  return Status(StatusCode::kFailedPrecondition,
                "other processes may use blocks that were shared: free those blocks first");
}

}  // namespace commpool::internal
