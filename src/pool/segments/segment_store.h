// The segments of a pool: made with room under the limits and granted to its peers, entered into the books, registered
// with communicators, and given back to the driver. Modes call it.
//
// Effects (driver calls) are one at a time under the growth lock, which guards no data that others read. The books have
// a lock of their own, so that statistics and look-ups never wait for an effect.
#ifndef COMMPOOL_SRC_POOL_SEGMENTS_SEGMENT_STORE_H_
#define COMMPOOL_SRC_POOL_SEGMENTS_SEGMENT_STORE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "commpool/status.h"
#include "src/backing/backing.h"
#include "src/base/host_reserve.h"
#include "src/base/mutex.h"
#include "src/engine/types.h"
#include "src/pool/basis/pool_basis.h"
#include "src/pool/blocks/block_store.h"
#include "src/pool/blocks/graph_captures.h"
#include "src/pool/blocks/kept_blocks.h"
#include "src/pool/segments/new_segment.h"
#include "src/registration/registration_set.h"

namespace commpool::internal {

// The fate of the addresses when their memory is given back.
enum class Addresses {
  kFree,  // they serve again
  kKeep,  // nobody gets them while the process lives: another rank may still know what was there
};

class SegmentStore {
 public:
  SegmentStore(const PoolBasis& basis, const GraphCaptures& captures, BlockStore& blocks,
               std::unique_ptr<Backing> backing, std::shared_ptr<MemoryAccount> account);
  // Memory that is still there stays mapped until the process ends: the pool was abandoned.
  ~SegmentStore();

  // One collective or registering call at a time. Before growth().
  Mutex& collective() const COMMPOOL_RETURN_CAPABILITY(collective_) { return collective_; }
  // One change of the segments or peers at a time. Held across driver calls.
  Mutex& growth() const COMMPOOL_RETURN_CAPABILITY(growth_) { return growth_; }

  Backing& backing() { return *backing_; }
  const Backing& backing() const { return *backing_; }
  uint64_t granularity() const { return granularity_; }

  // Making. Calls the driver.
  //
  // kOutOfMemory where the pool's own limit, or the one on its device, leaves no room.
  Result<Room> TakeRoom(uint64_t bytes) const;
  bool FitsOwnLimit(uint64_t bytes) const;
  // kOutOfMemory for a request that the device could not serve if all of its memory were free.
  Status CheckPossible(uint64_t bytes) const;
  // Whether the device's limit would allow the request if no pool held anything.
  bool FitsEmptyPlacement(uint64_t bytes) const { return bytes <= account_->limit(); }
  // The bytes that the limits of the pool and of its placement leave.
  uint64_t RoomLeft() const;
  // The bytes that the pools of the placement have reserved, and the bytes beyond which this pool gives unused memory
  // back (a share of the placement's limit, or of its memory where it has no limit); UINT64_MAX where it never does.
  uint64_t HeldBytes() const { return account_->taken(); }
  uint64_t CollectionBytes() const;
  // The address table knows the memory before the engine does: once the engine knows it another thread may be handed a
  // block of it and free it. kInvalidArgument for memory that lies in a pool's already.
  // `room`: taken for it. `stream`: uses the memory first, null for nobody; the memory is ready for every stream when
  // this returns.
  Result<NewSegment> Make(uint64_t bytes, Room room, std::optional<StreamKey> stream = {}) COMMPOOL_REQUIRES(growth_);
  // A segment's way into the books.
  engine::SegmentIndex Adopt(NewSegment segment, engine::Space space = engine::Space::kLarge,
                             engine::Part part = engine::kCommonPart) COMMPOOL_REQUIRES(growth_);

  RegistrationSet& registrations() { return registrations_; }
  const RegistrationSet& registrations() const { return registrations_; }
  // Ends the registrations of these with every communicator. Goes on after a failure, and returns the first.
  Status Deregister(const std::vector<engine::SegmentIndex>& segments);

  // Gives the communicator up on this rank alone. One that is alive: on the thread that uses it. Waits for the device,
  // at most the deadline, and goes on where that passes: NCCL's kernel may wait there for the lost rank until an abort
  // ends it, and memory stays mapped until close() or rehome(), which wait again. One that has ended: any thread, at
  // once. A line of the log says what NCCL holds for good.
  Status AbandonCommunicator(ncclComm_t communicator, CommunicatorLife life) COMMPOOL_EXCLUDES(collective_);

  // Whether memory may be unmapped, and registrations end: what every call asks that does so.
  //
  // A communicator knows the segment: NCCL may still use it.
  bool IsPinned(engine::SegmentIndex segment) const { return registrations_.IsRegistered(segment); }
  // kFailedPrecondition while a graph lives that may use what goes: with NCCL's handles of registered memory, or at the
  // places of its blocks, which are free memory in a symmetric pool alone.
  enum class Unmapped { kFreeMemory, kBlocksToo };
  Status CheckMayUnmap(Unmapped unmapped = Unmapped::kFreeMemory) const;

  // Giving back. Calls the driver.
  //
  // Wholly free segments, the largest index first, until the pool would reserve no more than so much; pinned ones where
  // the caller deregisters them before.
  enum class Pinned { kStay, kGo };
  std::vector<engine::SegmentIndex> ChooseFree(uint64_t keep_bytes, Pinned pinned) const;
  // Frees those of the segments that are wholly free and used by no stream any more; returns their bytes. Deregistered
  // before.
  Result<uint64_t> Release(const std::vector<engine::SegmentIndex>& segments) COMMPOOL_REQUIRES(growth_);
  // The same for one; false where another thread was served from it meanwhile.
  Result<bool> ReleaseOne(engine::SegmentIndex segment, Addresses addresses, uint64_t* released)
      COMMPOOL_REQUIRES(growth_);
  // Memory that was registered, and that another rank or NCCL may still use though this rank uses it no more. It stays
  // mapped, and serves nobody. kPinned: NCCL has not ended its registration on this rank.
  enum class Aside { kUnpinned, kPinned };
  void SetAside(NewSegments segments, Aside how);
  // Gives that back. Pinned ones go after a loss, with every communicator abandoned and the device quiet; the others
  // also where all ranks end the pool together.
  Status ReleaseSetAside(Pinned pinned);
  // The room of memory that is given back by others (pages).
  void ReturnRoom(uint64_t bytes) COMMPOOL_REQUIRES(growth_);

  // Sleeping, of backings with pages. Calls the driver. Nobody uses the memory and nothing is registered.
  //
  // Waits for what the pool's peers have submitted.
  Status AwaitPeers() COMMPOOL_REQUIRES(growth_);
  // Takes all memory out of its addresses. Where it fails the memory is mapped as before.
  Status UnmapAll() COMMPOOL_REQUIRES(growth_);
  // Maps again what UnmapAll took out, with its contents.
  Status MapAll() COMMPOOL_REQUIRES(growth_);
  // Gives the memory back, and its room: the addresses, and the books, stay.
  void ReleaseUnmapped() COMMPOOL_REQUIRES(growth_);
  // Makes and maps memory at the same addresses, and lets what was kept come back to what is mapped while it maps the
  // rest. Where it fails the memory is gone as before, and nothing is copied any more.
  Status Wake() COMMPOOL_REQUIRES(growth_);
  // The live blocks of a pool that sleeps, on the host.
  KeptBlocks& kept() COMMPOOL_REQUIRES(growth_) { return kept_; }
  uint64_t kept_bytes() const { return kept_.bytes(); }
  uint64_t asleep_bytes() const { return asleep_bytes_.load(std::memory_order_relaxed); }

  // Peers.
  const ReservedSet<int>& peers() const COMMPOOL_REQUIRES(growth_) { return peers_; }
  Status Grant(const std::vector<int>& peers) COMMPOOL_EXCLUDES(growth_);
  Status Revoke(const std::vector<int>& peers) COMMPOOL_EXCLUDES(growth_);

  // The books. Put and Take are the modes' that adopt segments their own way (territories).
  void Put(engine::SegmentIndex index, std::unique_ptr<Segment> segment);
  std::unique_ptr<Segment> Take(engine::SegmentIndex index);
  std::vector<SegmentToRegister> List() const;
  std::vector<engine::SegmentIndex> Indexes() const;
  // REQUIRES: the growth lock keeps it from being taken.
  Segment& Get(engine::SegmentIndex index) const;
  uint64_t BytesOf(engine::SegmentIndex index) const;
  uint64_t count() const;

  // The runtime ends, or the device is lost: nothing calls the driver for them any more.
  void Abandon();

 private:
  // The backing's memory for a stream, ready for all of them.
  Result<std::unique_ptr<Segment>> MakeFor(std::optional<StreamKey> stream, uint64_t bytes) COMMPOOL_REQUIRES(growth_);
  Status WaitForPeer(int peer) const;
  void ForgetCommunicator(ncclComm_t communicator);
  Status LetTheDeviceFinish();
  Status EndRegistrations(ncclComm_t communicator);
  Status WakeSegment(Segment& segment) COMMPOOL_REQUIRES(growth_);
  ReservedVector<Segment*> Pointers() const;
  NewSegments TakeSetAside(Pinned pinned);

  const PoolBasis& basis_;
  const GraphCaptures& captures_;
  BlockStore& blocks_;
  const std::unique_ptr<Backing> backing_;
  const std::shared_ptr<MemoryAccount> account_;
  const uint64_t granularity_;
  std::atomic<uint64_t> asleep_bytes_{0};  // changes under the growth lock
  mutable Mutex collective_{LockRank::kCollective};
  mutable Mutex growth_{LockRank::kGrowth};
  ReservedSet<int> peers_ COMMPOOL_GUARDED_BY(growth_);
  mutable Mutex mutex_{LockRank::kLeaf};
  ReservedMap<engine::SegmentIndex, std::unique_ptr<Segment>> segments_ COMMPOOL_GUARDED_BY(mutex_);
  RegistrationSet registrations_;
  KeptBlocks kept_;
  NewSegments set_aside_ COMMPOOL_GUARDED_BY(mutex_);
  NewSegments pinned_aside_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SEGMENTS_SEGMENT_STORE_H_
