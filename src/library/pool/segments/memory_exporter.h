// MemoryExporter: what other processes need to map a pool's memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "commpool/status.h"
#include "src/library/backing/backing.h"
#include "src/library/pool/basis/pool_basis.h"
#include "src/library/pool/blocks/block_store.h"
#include "src/library/pool/segments/segment_book.h"
#include "src/library/sharing/shared_pool.h"

namespace commpool::internal {

// What a program needs to map a segment in another process.
struct SharedSegment {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  int descriptor = -1;  // as Segment::Descriptor
};

// SegmentStore has one. What hands memory out takes the growth lock: nobody sleeps, or releases a segment, meanwhile.
class MemoryExporter {
 public:
  MemoryExporter(const PoolBasis& basis, BlockStore& blocks, const Backing& backing, const SegmentBook& book)
      : basis_(basis), blocks_(blocks), backing_(backing), book_(book) {}

  // Where other processes reach the live block that holds the address; from now on, until its free, its memory stays.
  // kNotSupported for memory that moves, or that other ranks have a say in.
  Result<SharedSegment> Share(CUdeviceptr address);
  // The pool's ticket, the same for its whole life. `imports`: what a sleep does while processes import the pool.
  Result<std::string> Ticket(Imports imports);
  // The ticket of a block, with which the pool is shared too.
  Result<std::string> TicketOf(CUdeviceptr address, Writes writes);
  // Around what the owner writes to a block with a ticket. The first may wait for importers until the deadline.
  Status BeginUpdate(CUdeviceptr address);
  Status EndUpdate(CUdeviceptr address, CUstream stream, StreamKey key);
  // The fabric's bytes, or a copy of the descriptor, of the segment that holds the address; neither where its number is
  // `known`. ShareServer's thread calls it for an importer.
  Result<SharedMemory::Exported> Export(CUdeviceptr address, std::optional<uint64_t> known);
  // kFailedPrecondition while other processes may use the memory. Sleep asks it: an importer's mapping would keep the
  // memory from the device.
  Status CheckNoneShared() const;

 private:
  // The live block that holds the address, in memory that may be shared. From now on, until its free, its memory stays.
  Result<commpool_block> Mark(CUdeviceptr address, engine::Mark mark) COMMPOOL_REQUIRES(kGrowthLock);

  const PoolBasis& basis_;
  BlockStore& blocks_;
  const Backing& backing_;
  const SegmentBook& book_;
};

}  // namespace commpool::internal
