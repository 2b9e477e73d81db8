// SegmentStore: the memory of a pool, in its parts: the book of its segments, the room that they take, who makes them,
// their peers, how they sleep, how other processes reach them; and the pool's registrations. The modes call the parts.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "commpool/status.h"
#include "src/library/backing/backing.h"
#include "src/library/base/mutex.h"
#include "src/library/engine/types.h"
#include "src/library/pool/basis/pool_basis.h"
#include "src/library/pool/blocks/block_store.h"
#include "src/library/pool/blocks/graph_captures.h"
#include "src/library/pool/blocks/kept_blocks.h"
#include "src/library/pool/shared/memory_account.h"
#include "src/library/pool/shared/tables.h"
#include "src/library/registration/registration_set.h"
#include "src/library/sharing/share_server.h"

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
  // stays as well: the pool removes it when it releases the segment. Only SegmentMaker::Adopt calls it.
  std::unique_ptr<Segment> Adopt() {
    room_.Keep();
    entry_.Keep();
    return std::move(segment_);
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

// Whether what NCCL still knows of is meant too.
enum class Pinned { kStay, kGo };

// The segments that a pool owns, by number, and the memory that it has set aside. Lock: its own, a leaf; so statistics
// and look-ups never wait for a driver call.
class SegmentBook {
 public:
  // A number that is there already is a bug, as is one that is missing in Take. The caller holds the pool's lock, under
  // which the engine gave the number.
  void Put(engine::SegmentIndex index, std::unique_ptr<Segment> segment);
  std::unique_ptr<Segment> Take(engine::SegmentIndex index);
  // By number, in rising order, so the same on every rank of a symmetric pool.
  std::vector<SegmentToRegister> List() const;
  std::vector<engine::SegmentIndex> Indexes() const;
  // Valid as long as the caller holds the growth lock, under which segments come and go.
  Segment& Get(engine::SegmentIndex index) const;
  std::vector<Segment*> Pointers() const;
  uint64_t count() const;

  // Memory is set aside when this rank needs it no more, but another rank or NCCL may still use it. It stays mapped,
  // and serves nobody. kPinned: NCCL has not ended its registration on this rank. kRefused: nobody uses it, but the
  // driver did not unmap it.
  enum class Aside { kUnpinned, kPinned, kRefused };
  // Cannot fail: it moves the list's nodes. Addresses that another rank may still know stay out of use for good.
  void SetAside(NewSegments segments, Aside how);
  // The caller releases or abandons them, without the lock.
  NewSegments TakeSetAside(Pinned pinned);

 private:
  mutable Mutex mutex_{LockRank::kLeaf};
  std::map<engine::SegmentIndex, std::unique_ptr<Segment>> segments_ COMMPOOL_GUARDED_BY(mutex_);
  // Both lists hold memory that serves nobody and stays mapped (SetAside).
  NewSegments set_aside_ COMMPOOL_GUARDED_BY(mutex_);
  NewSegments pinned_aside_ COMMPOOL_GUARDED_BY(mutex_);
};

// What the parts of a SegmentStore refer to that call the driver.
class SegmentPart {
 public:
  SegmentPart(const PoolBasis& basis, BlockStore& blocks, Backing& backing, SegmentBook& book)
      : basis_(basis), blocks_(blocks), backing_(backing), book_(book) {}

 protected:
  const PoolBasis& basis_;
  BlockStore& blocks_;
  Backing& backing_;
  SegmentBook& book_;
};

// How much memory a pool may still take: under its own limit, its device's limit, and beside the headroom. The room of
// all of a pool's memory is taken and returned here. Any thread may ask; what takes and returns holds the growth lock.
class PoolRoom : SegmentPart {
 public:
  PoolRoom(const SegmentPart& part, std::shared_ptr<MemoryAccount> account, uint64_t granularity)
      : SegmentPart(part), account_(std::move(account)), granularity_(granularity) {}

  // kOutOfMemory where the limit of the pool or of its device leaves no room, or the device's headroom would not stay
  // free: then the driver is asked. Comes before the memory is made, so no two pools make memory for the last bytes of
  // a limit.
  Result<Room> Take(uint64_t bytes) const;
  // The room of memory that is about to go: it returns with its object. Bytes that sleep have returned theirs before.
  Room Of(uint64_t bytes) COMMPOOL_REQUIRES(kGrowthLock);
  // For memory that has gone back to the driver.
  void Return(uint64_t bytes) COMMPOOL_REQUIRES(kGrowthLock) { const Room returned = Of(bytes); }
  // The pool's memory has gone to sleep: other pools may have its room.
  void Sleep(uint64_t bytes) COMMPOOL_REQUIRES(kGrowthLock);
  // Takes the room of what sleeps again, for it is about to wake. kOutOfMemory under the device's limit.
  Status TakeToWake() COMMPOOL_REQUIRES(kGrowthLock);
  void Wake() COMMPOOL_REQUIRES(kGrowthLock) {
    asleep_bytes_.store(0, std::memory_order_relaxed);
    account_->NotePeak();
  }
  // Reserved bytes without physical memory, and without room; 0 while the pool is awake.
  uint64_t asleep_bytes() const { return asleep_bytes_.load(std::memory_order_relaxed); }

  // The device's free memory; UINT64_MAX for memory of the host, of which the device's says nothing, and where the
  // driver does not tell. Asks the driver.
  uint64_t FreeOnDevice() const;
  // The bytes that must go back before the device's headroom is free again; 0 without one. Asks the driver.
  uint64_t LackingHeadroom() const;
  // Whether the pool's own limit, apart from its device's, allows so many bytes more.
  bool FitsOwnLimit(uint64_t bytes) const;
  // The pool's budget, if it has no room for so many bytes: then only pools of the budget can help. Else empty.
  std::string BudgetThatLacks(uint64_t bytes) const {
    return account_->PartLacks(bytes) ? basis_.configuration.budget : std::string();
  }
  // What pools of the pool's budget share; null without one.
  const MemoryAccount* budget() const { return basis_.configuration.budget.empty() ? nullptr : account_.get(); }
  // Whether the device's limit would allow the request if no pool held memory.
  bool FitsEmptyPlacement(uint64_t bytes) const { return bytes <= account_->limit(); }
  // kOutOfMemory for a request that even an empty device could not serve.
  Status CheckPossible(uint64_t bytes) const;
  // The bytes that the limits of the pool and of its placement still allow. A moment later it may be less: Take
  // decides.
  uint64_t Left() const;
  // How much all pools of the placement have reserved together. Once that exceeds CollectionBytes, this pool releases
  // unused memory before it grows. The threshold is a share of the placement's limit, or of its memory where it has no
  // limit; UINT64_MAX: never.
  uint64_t TakenByAll() const { return account_->taken(); }
  uint64_t CollectionBytes() const;

 private:
  // Of the pool's device or host node. Shared with the other pools there.
  const std::shared_ptr<MemoryAccount> account_;
  const uint64_t granularity_;
  std::atomic<uint64_t> asleep_bytes_{0};  // changes under the growth lock
};

// The other devices of this process that may use a pool's memory. Peers change under the growth lock; a leaf lock of
// its own guards the set for others.
class PoolPeers : SegmentPart {
 public:
  // Known from the pool's options before it has a segment, so that the first one is made for them.
  explicit PoolPeers(const SegmentPart& part);

  // That have access to every segment, and get it to each new one.
  std::vector<int> Devices() const;
  // Whether other devices of this process may use the memory: peers, or any, as the backing makes it. One load.
  bool OthersMayUse() const { return others_may_use_.load(std::memory_order_acquire); }
  // Who reads and writes the memory, such as "0 1 cpu", and who may beside them; asks the driver, holds no lock.
  MemoryFacts Access() const;
  // All or none. Devices that have access already, and the pool's own, are skipped.
  Status Grant(const std::vector<int>& peers);
  // Waits for the pool's device and for each peer. kNotFound for a device that has no access.
  Status Revoke(const std::vector<int>& peers);

 private:
  void NoteOthersMayUse() COMMPOOL_REQUIRES(mutex_);

  const bool made_for_others_;  // the backing opens it to other devices, or it is the host's
  mutable Mutex mutex_{LockRank::kLeaf};
  std::set<int> peers_ COMMPOOL_GUARDED_BY(mutex_);
  std::atomic<bool> others_may_use_{false};
};

// What becomes of a segment's addresses when its memory is released.
enum class Addresses {
  kFree,  // they may be used again
  kKeep,  // nobody may use them until the process ends: another rank may still know what was there
};

// Makes a pool's segments, gives them to its engine, and releases them. Driver calls run one at a time, under the
// growth lock.
class SegmentMaker : SegmentPart {
 public:
  SegmentMaker(const SegmentPart& part, PoolRoom& room, const PoolPeers& peers, const RegistrationSet& registrations)
      : SegmentPart(part), room_(room), peers_(peers), registrations_(registrations) {}

  // Whether a tool hears of the segments as its heaps. Then blocks have guards behind them.
  bool tells_heaps() const { return tells_heaps_; }

  // Makes a segment, and enters it into the address table before any engine knows it: after that another thread may get
  // a block of it and free it. kInvalidArgument for memory that lies in a pool already. `room`: taken for the segment.
  // `stream`: the first user of the memory, null for nobody; when this returns, the memory is ready for every stream.
  Result<NewSegment> Make(uint64_t bytes, Room room, std::optional<StreamKey> stream = {})
      COMMPOOL_REQUIRES(kGrowthLock);
  // Enters a segment into the books. Takes the pool's lock. From then on its memory serves. Has no way to fail: other
  // ranks may serve from the same segment already.
  engine::SegmentIndex Adopt(NewSegment segment, engine::Space space = engine::Space::kLarge,
                             engine::Part part = engine::kCommonPart) COMMPOOL_REQUIRES(kGrowthLock);

  // Wholly free segments, the largest index first, until the pool would reserve at most `keep_bytes`. Those that a
  // communicator knows are pinned, for NCCL may still use them; they count where the caller deregisters them first.
  // Takes the pool's lock. Other threads may take a block of one of them meanwhile: ReleaseOne looks again.
  std::vector<engine::SegmentIndex> ChooseFree(uint64_t keep_bytes, Pinned pinned) const;
  // Releases those of the segments that are wholly free and that no stream uses any more; returns their bytes. The
  // caller has deregistered them.
  Result<uint64_t> Release(const std::vector<engine::SegmentIndex>& segments) COMMPOOL_REQUIRES(kGrowthLock);
  // Release for one segment; 0 where another thread got a block of it meanwhile. Where the driver refuses, the memory
  // is set aside.
  Result<uint64_t> ReleaseOne(engine::SegmentIndex segment, Addresses addresses) COMMPOOL_REQUIRES(kGrowthLock);
  // Releases memory that nobody finds any more, and sets it aside where the driver unmaps nothing.
  Status ReleaseOrSetAside(NewSegment segment);
  // Tries that again for what was set aside. Pinned memory goes only after a loss, with every communicator abandoned
  // and the device idle; unpinned memory also where all ranks end the pool together.
  Status ReleaseSetAside(Pinned pinned);

 private:
  // Makes memory of the backing for a stream, and waits until every stream may use it. No stream: the memory must not
  // depend on one.
  Result<std::unique_ptr<Segment>> MakeFor(std::optional<StreamKey> stream, uint64_t bytes)
      COMMPOOL_REQUIRES(kGrowthLock);

  PoolRoom& room_;
  const PoolPeers& peers_;
  const RegistrationSet& registrations_;
  // Decided once: NCCL's backing may find out later that cudaMalloc makes its memory.
  const bool tells_heaps_ = basis_.runtime.observer.TakesHeapsOf(backing_);
};

// What a program needs to map a segment in another process.
struct SharedSegment {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  int descriptor = -1;  // as Segment::Descriptor
};

// What other processes need to map a pool's memory. What hands memory out takes the growth lock: nobody sleeps, or
// releases a segment, meanwhile.
class MemoryExporter : SegmentPart {
 public:
  explicit MemoryExporter(const SegmentPart& part) : SegmentPart(part) {}

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
};

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

  // The parts, for any thread; the modes change them. Each has references to those above it alone.
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
