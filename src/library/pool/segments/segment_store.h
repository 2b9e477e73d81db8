// SegmentStore: the memory of a pool, in its parts: the book of its segments, the room that they take, who makes them,
// their peers, how they sleep, how other processes reach them; and the pool's registrations. The modes call the parts.
#pragma once

#include <cstdint>
#include <memory>

#include "commpool/status.h"
#include "src/library/backing/backing.h"
#include "src/library/pool/basis/pool_basis.h"
#include "src/library/pool/blocks/block_store.h"
#include "src/library/pool/blocks/graph_captures.h"
#include "src/library/pool/blocks/kept_blocks.h"
#include "src/library/pool/segments/memory_exporter.h"
#include "src/library/pool/segments/pool_peers.h"
#include "src/library/pool/segments/pool_room.h"
#include "src/library/pool/segments/segment_book.h"
#include "src/library/pool/segments/segment_maker.h"
#include "src/library/registration/registration_set.h"

namespace commpool::internal {

// What loses its memory: segments that are wholly free, or live blocks too, as in sleep.
enum class Unmapped { kFreeMemory, kBlocksToo };

// Pool owns one. It owns the backing, the segments, and the host's copies of a pool that sleeps.
class SegmentStore {
 public:
  SegmentStore(const PoolBasis& basis, const GraphCaptures& captures, BlockStore& blocks,
               std::unique_ptr<Backing> backing, std::shared_ptr<MemoryAccount> account);
  // After an abandonment memory that is still there stays mapped until the process ends.
  ~SegmentStore();

  // What the segments are, for a registrar.
  commpool_segment_traits Traits() const;
  // kFailedPrecondition while a live graph may use the memory that will be unmapped. A graph may use registered memory
  // through NCCL's handles, and its own blocks by their addresses. Only a symmetric pool may count such blocks as free
  // memory.
  Status CheckMayUnmap(Unmapped unmapped = Unmapped::kFreeMemory) const;
  // Ends the registrations of these segments with every communicator and registrar. Goes on after a failure, and
  // returns the first. REQUIRES: the collective lock, and a quiet device (rule 5). Calls NCCL.
  Status Deregister(const std::vector<engine::SegmentIndex>& segments);
  // Gives up the communicator on this rank alone. A live one: call it on the thread that uses it. It waits for the
  // device, at most until the deadline, and then continues in any case, because NCCL's kernel may wait for the lost
  // rank until an abort ends it. Memory stays mapped until close() or rehome(), which wait again. An ended one: any
  // thread may call, and nothing waits. A line of the log says what NCCL keeps for good. Takes the collective lock.
  Status AbandonCommunicator(ncclComm_t communicator, CommunicatorLife life);
  // The runtime ends, or the device is lost: from now on nobody calls the driver for the segments. The memory stays
  // mapped until the process ends.
  void Abandon();

  // The parts. Each has references to those above it alone.
  const std::unique_ptr<Backing> backing;
  const uint64_t granularity;  // in bytes: segments and pages are multiples of it
  SegmentBook book;
  // Only one thread at a time changes them, under the collective lock. Any thread may ask.
  RegistrationSet registrations;
  PoolRoom room;
  PoolPeers peers;
  SegmentMaker maker;
  KeptBlocks kept;
  MemoryExporter exporter;

 private:
  // OK also where the deadline passes: an abandonment goes on in any case.
  Status LetTheDeviceFinish();
  // For one that is alive. OK also where NCCL fails: then the pool only drops the handles.
  Status EndRegistrations(ncclComm_t communicator);

  const PoolBasis& basis_;
  const GraphCaptures& captures_;
  BlockStore& blocks_;
};

// References to the parts of a pool, for what works on all of them: the modes, growth, sleep, and the calls of all
// ranks. Such an object passes itself on to the next one. The parts outlive it.
class PoolParts {
 public:
  PoolParts(PoolBasis& basis, GraphCaptures& captures, BlockStore& blocks, SegmentStore& segments)
      : basis_(basis), captures_(captures), blocks_(blocks), segments_(segments) {}

 protected:
  PoolBasis& basis_;
  GraphCaptures& captures_;
  BlockStore& blocks_;
  SegmentStore& segments_;
};

}  // namespace commpool::internal
