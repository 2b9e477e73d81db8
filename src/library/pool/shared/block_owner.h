// BlockOwner: the owner of blocks, as the process finds it by an address. Pools are the only owners: memory imported
// from another process is known to sharing/pool_import.h alone.
//
// Any thread may call any method.
#pragma once

#include <cuda.h>

#include <string>

#include "commpool/commpool.h"
#include "commpool/status.h"
#include "src/library/engine/thread_cache.h"
#include "src/library/stream/stream_key.h"

namespace commpool::internal {

// AddressTable keeps owners alive. Runtime calls them by address, and ThreadCaches gives their blocks back, both
// without a lock. Caches and tables know no more of a pool than this, so they need none of its headers.
class BlockOwner {
 public:
  virtual ~BlockOwner() = default;

  virtual const std::string& name() const = 0;
  virtual int device() const = 0;
  // Whether its blocks have the same offsets on every rank of a communicator.
  virtual bool symmetric() const = 0;

  // The live block that holds the address; kNotFound where there is none. Takes the owner's lock.
  virtual Result<commpool_block> FindBlock(CUdeviceptr address) const = 0;

  // Caches were asked before: this is the slow way, which takes the owner's lock.
  virtual Status Free(CUdeviceptr address) = 0;
  // Another stream uses the block too, so nobody may reuse the block before that stream's work is done.
  virtual Status RecordStream(CUdeviceptr address, StreamKey stream) = 0;
  // Whether the program promised that all streams it passes outlive their use.
  virtual bool streams_outlive() const = 0;
  // Takes blocks that were freed into threads' caches. Call it without the lock `caches`: the owner takes its own, and
  // may give memory back to the driver.
  virtual void TakeBack(const engine::ReturnedBlocks& returned) = 0;
};

}  // namespace commpool::internal
