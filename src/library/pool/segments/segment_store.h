// SegmentStore: the segments of a pool. It owns them and the pool's registrations. It makes them with room under the
// limits, grants them to peers, enters them into the books, registers them, and releases them. The modes call it.
//
// Driver calls run one at a time under the growth lock, which guards no data that others read. The books have a lock of
// their own, so statistics and look-ups never wait for a driver call.
#ifndef COMMPOOL_SRC_LIBRARY_POOL_SEGMENTS_SEGMENT_STORE_H_
#define COMMPOOL_SRC_LIBRARY_POOL_SEGMENTS_SEGMENT_STORE_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "commpool/status.h"
#include "src/library/backing/backing.h"
#include "src/library/base/mutex.h"
#include "src/library/base/progress.h"
#include "src/library/engine/types.h"
#include "src/library/pool/basis/pool_basis.h"
#include "src/library/pool/blocks/block_store.h"
#include "src/library/pool/blocks/graph_captures.h"
#include "src/library/pool/blocks/kept_blocks.h"
#include "src/library/pool/shared/address_table.h"
#include "src/library/pool/shared/memory_account.h"
#include "src/library/registration/registration_set.h"

namespace commpool::internal {

// A segment that exists but that no engine knows yet. Its addresses are in the table, the pool's peers have access, and
// its bytes count. Unless a pool adopts it, its destructor releases it with its room and addresses. One thread, which
// made it, has it until then. GrowTogether and the growers keep it in their frames, so a failure on the way undoes all.
class NewSegment {
 public:
  NewSegment() = default;
  NewSegment(Room room, std::unique_ptr<Segment> segment, AddressTable::Entry entry)
      : room_(std::move(room)), segment_(std::move(segment)), entry_(std::move(entry)) {}

  explicit operator bool() const { return segment_ != nullptr; }
  Segment* operator->() const { return segment_.get(); }

  // Gives the segment to the pool, which returns the room when it releases the segment. The entry in the address table
  // stays as well: the pool removes it when it releases the segment. Only SegmentStore::Adopt calls it.
  std::unique_ptr<Segment> Adopt() {
    room_.Keep();
    entry_.Keep();
    return std::move(segment_);
  }

  // Releases the memory, and keeps the addresses out of use: another rank may still know what was there. For memory
  // that was set aside (SetAside).
  Status Release() {
    segment_->KeepAddresses();
    Status status = segment_->Release();
    if (!status.ok()) room_.Keep();  // still mapped
    return status;
  }

  // Keeps the memory, and its room, until the process ends: somebody may still use it.
  void Abandon() {
    segment_->Abandon();
    room_.Keep();
  }

 private:
  Room room_;  // returned after the segment has gone
  std::unique_ptr<Segment> segment_;
  AddressTable::Entry entry_;  // ends first: once the segment has gone the driver may give its addresses to others
};

// A list, because its nodes move to another list without an allocation: so an undo cannot run out of host memory.
using NewSegments = std::list<NewSegment>;

// What becomes of a segment's addresses when its memory is released.
enum class Addresses {
  kFree,  // they may be used again
  kKeep,  // nobody may use them until the process ends: another rank may still know what was there
};

// Pool owns one. Locks, outermost first: `collective`, `growth`, then a leaf for the books. It also owns the backing,
// the host's copies of a pool that sleeps, and memory that was set aside. Statistics and look-ups of other threads take
// the leaf alone.
class SegmentStore {
 public:
  SegmentStore(const PoolBasis& basis, const GraphCaptures& captures, BlockStore& blocks,
               std::unique_ptr<Backing> backing, std::shared_ptr<MemoryAccount> account);
  // After an abandonment memory that is still there stays mapped until the process ends.
  ~SegmentStore();

  // Held during one collective or registering call. Lock it before growth(). Calls that register, sleep or agree with
  // other ranks hold it. It is no lock of data, so allocations and frees go on beside it.
  Mutex& collective() const COMMPOOL_RETURN_CAPABILITY(collective_) { return collective_; }
  // Held during one change of the segments or peers, driver calls included. Grant, Revoke, growth, release, sleep and
  // wake hold it; so these never run beside each other.
  Mutex& growth() const COMMPOOL_RETURN_CAPABILITY(growth_) { return growth_; }

  Backing& backing() { return *backing_; }
  const Backing& backing() const { return *backing_; }
  // In bytes: segments and pages are multiples of it.
  uint64_t granularity() const { return granularity_; }
  // Whether a tool hears of the segments as its heaps. Then blocks have guards behind them.
  bool tells_heaps() const { return tells_heaps_; }

  // Making. Calls the driver.
  //
  // kOutOfMemory where the limit of the pool or of its device leaves no room, or the device's headroom would not stay
  // free: then the driver is asked. Comes before Make: the room is there
  // before the memory, so no two pools make memory for the last bytes of a limit.
  Result<Room> TakeRoom(uint64_t bytes) const;
  // The device's free memory; UINT64_MAX for memory of the host, of which the device's says nothing, and where the
  // driver does not tell. Asks the driver.
  uint64_t FreeOnDevice() const;
  // The bytes that must go back before the device's headroom is free again; 0 without one. Asks the driver.
  uint64_t LackingHeadroom() const;
  // Whether the pool's own limit, apart from its device's, allows so many bytes more.
  bool FitsOwnLimit(uint64_t bytes) const;
  // kOutOfMemory for a request that even an empty device could not serve.
  Status CheckPossible(uint64_t bytes) const;
  // Whether the device's limit would allow the request if no pool held memory.
  bool FitsEmptyPlacement(uint64_t bytes) const { return bytes <= account_->limit(); }
  // The bytes that the limits of the pool and of its placement still allow. A moment later it may be less: TakeRoom
  // decides.
  uint64_t RoomLeft() const;
  // HeldBytes: how much all pools of the placement have reserved together. Once that exceeds CollectionBytes, this pool
  // releases unused memory before it grows. The threshold is a share of the placement's limit, or of its memory where
  // it has no limit; UINT64_MAX: never.
  uint64_t HeldBytes() const { return account_->taken(); }
  uint64_t CollectionBytes() const;
  // Makes a segment, and enters it into the address table before any engine knows it: after that another thread may get
  // a block of it and free it. kInvalidArgument for memory that lies in a pool already. `room`: taken for the segment.
  // `stream`: the first user of the memory, null for nobody; when this returns, the memory is ready for every stream.
  Result<NewSegment> Make(uint64_t bytes, Room room, std::optional<StreamKey> stream = {}) COMMPOOL_REQUIRES(growth_);
  // Enters a segment into the books. Takes the pool's lock. From then on its memory serves. Has no way to fail: other
  // ranks may serve from the same segment already.
  engine::SegmentIndex Adopt(NewSegment segment, engine::Space space = engine::Space::kLarge,
                             engine::Part part = engine::kCommonPart) COMMPOOL_REQUIRES(growth_);

  // Only one thread at a time changes them, under the collective lock. Any thread may ask.
  RegistrationSet& registrations() { return registrations_; }
  const RegistrationSet& registrations() const { return registrations_; }
  // What the segments are, for a registrar.
  commpool_segment_traits Traits() const;
  // Ends the registrations of these segments with every communicator and registrar. Goes on after a failure, and
  // returns the first. REQUIRES: the collective lock, and a quiet device (rule 5). Calls NCCL.
  Status Deregister(const std::vector<engine::SegmentIndex>& segments);

  // Gives up the communicator on this rank alone. A live one: call it on the thread that uses it. It waits for the
  // device, at most until the deadline, and then continues in any case, because NCCL's kernel may wait for the lost
  // rank until an abort ends it. Memory stays mapped until close() or rehome(), which wait again. An ended one: any
  // thread may call, and nothing waits. A line of the log says what NCCL keeps for good.
  Status AbandonCommunicator(ncclComm_t communicator, CommunicatorLife life) COMMPOOL_EXCLUDES(collective_);

  // Whether memory may be unmapped and registrations may end. Every call that does so asks here.
  //
  // Pinned: a communicator knows the segment, so NCCL may still use it.
  bool IsPinned(engine::SegmentIndex segment) const { return registrations_.IsRegistered(segment); }
  // kFailedPrecondition while a live graph may use the memory that will be unmapped. A graph may use registered memory
  // through NCCL's handles, and its own blocks by their addresses. Only a symmetric pool may count such blocks as free
  // memory. kBlocksToo: live blocks lose their memory too, as in sleep.
  enum class Unmapped { kFreeMemory, kBlocksToo };
  Status CheckMayUnmap(Unmapped unmapped = Unmapped::kFreeMemory) const;

  // Release. Calls the driver.
  //
  // Wholly free segments, the largest index first, until the pool would reserve at most `keep_bytes`. Pinned ones count
  // where the caller deregisters them first.
  enum class Pinned { kStay, kGo };
  // Takes the pool's lock. Other threads may take a block of one of them meanwhile: ReleaseOne looks again.
  std::vector<engine::SegmentIndex> ChooseFree(uint64_t keep_bytes, Pinned pinned) const;
  // Releases those of the segments that are wholly free and that no stream uses any more; returns their bytes. The
  // caller has deregistered them.
  Result<uint64_t> Release(const std::vector<engine::SegmentIndex>& segments) COMMPOOL_REQUIRES(growth_);
  // Release for one segment; false where another thread got a block of it meanwhile. Adds the bytes to `*released`
  // before the driver's call, so they count even where that fails.
  Result<bool> ReleaseOne(engine::SegmentIndex segment, Addresses addresses, uint64_t* released)
      COMMPOOL_REQUIRES(growth_);
  // Memory is set aside when this rank needs it no more, but another rank or NCCL may still use it. It stays mapped,
  // and serves nobody. kPinned: NCCL has not ended its registration on this rank.
  enum class Aside { kUnpinned, kPinned };
  // Cannot fail: it moves the list's nodes.
  void SetAside(NewSegments segments, Aside how);
  // Releases what was set aside. Pinned memory goes only after a loss, with every communicator abandoned and the device
  // idle; unpinned memory also where all ranks end the pool together.
  Status ReleaseSetAside(Pinned pinned);
  // Returns the room of memory that the caller itself has released (a grower's pages). Bytes that sleep have returned
  // their room before, and are not returned twice.
  void ReturnRoom(uint64_t bytes) COMMPOOL_REQUIRES(growth_);

  // Sleep, for backings with pages. Calls the driver. REQUIRES: nobody uses the memory, and nothing is registered.
  //
  // Waits for what the pool's peers have submitted.
  Status AwaitPeers() COMMPOOL_REQUIRES(growth_);
  // Unmaps all memory. Where it fails the memory is mapped as before.
  Status UnmapAll() COMMPOOL_REQUIRES(growth_);
  // Maps again what UnmapAll unmapped, with its contents.
  Status MapAll() COMMPOOL_REQUIRES(growth_);
  // Releases the memory and its room; addresses and books stay. Cannot be undone, so it comes last in a sleep.
  void ReleaseUnmapped() COMMPOOL_REQUIRES(growth_);
  // Makes and maps memory at the same addresses, and copies kept blocks back; it copies to one part while it maps the
  // next. Where it fails it releases the memory again, and no copy runs any more.
  Status Wake() COMMPOOL_REQUIRES(growth_);
  // The host's copy of a sleeping pool's live blocks.
  KeptBlocks& kept() COMMPOOL_REQUIRES(growth_) { return kept_; }
  // Any thread, for statistics, like the next one.
  uint64_t kept_bytes() const { return kept_.bytes(); }
  uint64_t asleep_bytes() const { return asleep_bytes_.load(std::memory_order_relaxed); }

  // Peers.
  // They change under the growth lock.
  std::vector<int> Peers() const;
  // Whether other devices of this process may use the memory: peers, or any, as the backing makes it. One load.
  bool OthersMayUse() const { return others_may_use_.load(std::memory_order_acquire); }
  // Who reads and writes the memory, such as "0 1 cpu", and who may beside them; asks the driver, holds no lock.
  MemoryFacts Access() const;
  // All or none. Devices that have access already, and the pool's own, are skipped.
  Status Grant(const std::vector<int>& peers) COMMPOOL_EXCLUDES(growth_);
  // Waits for the pool's device and for each peer. kNotFound for a device that has no access.
  Status Revoke(const std::vector<int>& peers) COMMPOOL_EXCLUDES(growth_);

  // Where other processes reach the live block that holds the address; from now on, until its free, its memory stays.
  // kNotSupported for memory that moves, or that other ranks have a say in. What a program needs to map the segment in
  // another process.
  struct Shared {
    CUdeviceptr address = 0;  // of the segment
    uint64_t bytes = 0;
    int descriptor = -1;  // as Segment::Descriptor
  };
  Result<Shared> Share(CUdeviceptr address) COMMPOOL_EXCLUDES(growth_);
  // The same for a block that other processes import by a ticket.
  Result<SharedBlock> ShareByTicket(CUdeviceptr address) COMMPOOL_EXCLUDES(growth_);
  // Whether other processes may import segments at all.
  Status CheckSharable() const;
  // The fabric's bytes, or a copy of the descriptor, of the segment that holds the address; neither where its number is
  // `known`. ShareServer's thread calls it for an importer.
  Result<SharedMemory::Exported> Export(CUdeviceptr address, std::optional<uint64_t> known) COMMPOOL_EXCLUDES(growth_);
  // kFailedPrecondition while other processes may use the memory. Sleep asks it: an importer's mapping would keep the
  // memory from the device.
  Status CheckNoneShared() const;

  // The books. Modes that adopt segments their own way (territories) call Put and Take. A number that is there already
  // is a bug, as is one that is missing in Take. The caller holds the pool's lock, under which the engine gave the
  // number.
  void Put(engine::SegmentIndex index, std::unique_ptr<Segment> segment);
  std::unique_ptr<Segment> Take(engine::SegmentIndex index);
  // By number, in rising order, so the same on every rank of a symmetric pool.
  std::vector<SegmentToRegister> List() const;
  std::vector<engine::SegmentIndex> Indexes() const;
  // REQUIRES: the caller holds the growth lock, so that nobody takes the segment.
  Segment& Get(engine::SegmentIndex index) const;
  uint64_t count() const;

  // The runtime ends, or the device is lost: from now on nobody calls the driver for the segments. The memory stays
  // mapped until the process ends.
  void Abandon();

 private:
  // Makes memory of the backing for a stream, and waits until every stream may use it. No stream: the memory must not
  // depend on one.
  Result<std::unique_ptr<Segment>> MakeFor(std::optional<StreamKey> stream, uint64_t bytes) COMMPOOL_REQUIRES(growth_);
  // kOutOfMemory where so many bytes more would take from the device's headroom.
  Status CheckHeadroom(uint64_t bytes) const;
  // At most until the pool's deadline.
  Status WaitForPeer(int peer) const;
  void NoteOthersMayUse() COMMPOOL_REQUIRES(mutex_);
  // The live block that holds the address, in memory that may be shared.
  Result<commpool_block> FindSharable(CUdeviceptr address) COMMPOOL_REQUIRES(growth_);
  // For a communicator that has ended already.
  void ForgetCommunicator(ncclComm_t communicator);
  // OK also where the deadline passes: an abandonment goes on in any case.
  Status LetTheDeviceFinish();
  // For one that is alive. OK also where NCCL fails: then the pool only drops the handles.
  Status EndRegistrations(ncclComm_t communicator);
  // Makes and maps memory, part by part, and starts the copies of each part.
  Status WakeSegments(Progress& progress) COMMPOOL_REQUIRES(growth_);
  Status WakeSegment(Segment& segment, Progress& progress) COMMPOOL_REQUIRES(growth_);
  // Valid as long as the caller holds the growth lock.
  std::vector<Segment*> Pointers() const;
  // Empties the lists, so that the driver is called without the lock.
  NewSegments TakeSetAside(Pinned pinned);

  const PoolBasis& basis_;
  const GraphCaptures& captures_;
  BlockStore& blocks_;
  const std::unique_ptr<Backing> backing_;
  // Of the pool's device or host node. Shared with the other pools there.
  const std::shared_ptr<MemoryAccount> account_;
  const uint64_t granularity_;
  // Decided once: NCCL's backing may find out later that cudaMalloc makes its memory.
  const bool tells_heaps_;
  // Reserved bytes without physical memory: they have no room in the account. 0 while the pool is awake.
  std::atomic<uint64_t> asleep_bytes_{0};  // changes under the growth lock
  mutable Mutex collective_{LockRank::kCollective};
  mutable Mutex growth_{LockRank::kGrowth};
  mutable Mutex mutex_{LockRank::kLeaf};
  // Devices that have access to every segment, and get it to each new one. They change under the growth lock as well.
  std::set<int> peers_ COMMPOOL_GUARDED_BY(mutex_);
  const bool made_for_others_;  // the backing opens it to other devices, or it is the host's
  std::atomic<bool> others_may_use_{false};
  std::map<engine::SegmentIndex, std::unique_ptr<Segment>> segments_ COMMPOOL_GUARDED_BY(mutex_);
  RegistrationSet registrations_;
  // The growth lock guards it.
  KeptBlocks kept_;
  // Both lists hold memory that serves nobody and stays mapped (SetAside).
  NewSegments set_aside_ COMMPOOL_GUARDED_BY(mutex_);
  NewSegments pinned_aside_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_POOL_SEGMENTS_SEGMENT_STORE_H_
