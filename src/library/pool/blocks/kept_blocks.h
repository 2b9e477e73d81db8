// The copies on the host that a pool keeps of its blocks while it sleeps. With Retain they stay once the pool is awake.
// Several copies run at a time: so the device's copy engines never wait for the next one, and a file is read or written
// while other parts are copied.
//
// One thread at a time, under the pool's growth lock; any thread may call what takes that lock itself, and bytes().
// Calls the driver.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/progress.h"
#include "src/library/driver/handles.h"
#include "src/library/engine/types.h"
#include "src/library/pool/basis/pool_basis.h"
#include "src/library/pool/blocks/block_store.h"
#include "src/library/pool/options.h"
#include "src/library/pool/shared/memory_account.h"

namespace commpool::internal {

class KeptMemory;

// KeptBlocks owns one, and uses it in a sleep and in a wake. It owns the copiers, with their streams and staging
// memory, from the first copy to the end of Await.
class HostCopies {
 public:
  enum class Direction { kToHost, kToDevice };
  // One copy of adjacent bytes.
  struct Run {
    CUdeviceptr device = 0;
    KeptMemory* memory = nullptr;
    uint64_t offset = 0;  // in `memory`; for a file, equal to `device` modulo KeptFile::kAlignment
    uint64_t bytes = 0;
  };

  explicit HostCopies(const PoolBasis& basis) : basis_(basis) {}

  // Call it before the first Start. A user who waits sees `what` ("keeping") and how many of `bytes` are copied.
  void Begin(const char* what, uint64_t bytes) { progress_.emplace(basis_.title + ": " + what, bytes); }
  // Starts a copy; where all copiers are busy it first waits for the oldest. After a failure earlier copies still run:
  // call Await() in any case. REQUIRES: the device's context is current, and the memory lives until Await() returns.
  Status Start(Run run, Direction direction);
  // Waits for all copies. Returns `started` where that is a failure, else the first failure of a copy. Afterwards no
  // copy runs.
  Status Await(Status started);

 private:
  // How many copies run at a time.
  static constexpr size_t kCopiers = 4;

  // One copy at a time, with a stream of its own.
  struct Copier {
    CopyStream stream;
    PinnedMemory staging;  // for copies to and from files: the driver copies only between memories
    std::optional<Run> running;
    Direction direction = Direction::kToHost;
  };

  // REQUIRES: the part is no larger than one copier takes.
  Status StartPart(const Run& part, Direction direction);
  // Waits for its copy; writes it to its file where it goes to one.
  Status Finish(Copier& copier);

  const PoolBasis& basis_;
  std::array<Copier, kCopiers> copiers_;  // while copies run
  // Which copier is next; so also the one whose copy began first.
  size_t turn_ = 0;
  // Null while nothing is copied, and where nobody called Begin.
  std::optional<Progress> progress_;
};

// SegmentStore has one. Sleeping calls Keep, and waking restores, segment by segment. It owns the copies, and the
// account of their memory, which is the host's and so counts in no device's limit.
class KeptBlocks {
 public:
  KeptBlocks(const PoolBasis& basis, BlockStore& blocks) : basis_(basis), blocks_(blocks), transfer_(basis) {}

  // Copies the live blocks that `wanted` names, and those that importers or other ranks may still read. A block that
  // has a copy already keeps that copy's place. Where it fails nothing is kept. REQUIRES: the device is quiet, and no
  // thread's cache holds a block.
  Status Keep(const KeptCopies& wanted) COMMPOOL_REQUIRES(kGrowthLock);

  // Starts the copies of a range's kept blocks. Back to the device the copies on the host stay. It may copy a
  // block that is freed meanwhile, which does no harm: it is free memory. REQUIRES: the range is mapped, and the
  // device's context is current.
  Status Start(engine::SegmentRange range, HostCopies::Direction direction) COMMPOOL_REQUIRES(kGrowthLock);
  // Gives up the copies of blocks that were freed in sleep and that nobody reads: they may be damaged.
  void DropFreed() COMMPOOL_REQUIRES(kGrowthLock);
  // Waits for all copies that were started. Returns `started` where that is a failure, else the first failure of a
  // copy. Call it before the memory is used or released.
  Status AwaitRestoring(Status started) COMMPOOL_REQUIRES(kGrowthLock) { return transfer_.Await(std::move(started)); }

  // Call it when the pool is awake, before it serves. Copies of live blocks stay if the program wants that (SetRetain);
  // all others go.
  void LetGo() COMMPOOL_REQUIRES(kGrowthLock);
  // Gives up all copies and their memory.
  void DropAll() COMMPOOL_REQUIRES(kGrowthLock);

  // Sets whether copies stay once the pool is awake. Holds for sleeps to come too. Those in files go: a file is sealed.
  void SetRetain(Retain retain);
  // Waits for a sleep or wake that is under way, as the next one.
  // Where a program can read the copy of a range. kNotFound where there is none.
  Result<const std::byte*> Find(CUdeviceptr address, uint64_t bytes);
  // DropAll for a pool that has ended, so that no sleep keeps blocks again.
  void Drop();
  // Call it when the runtime ends: the memory goes with the process.
  void Abandon();
  // The bytes that the copies take, on the host or in files. Several copies share one piece of memory: all of it counts
  // until its last copy goes.
  uint64_t bytes() const { return account_.taken(); }

 private:
  // The copy of one block.
  struct Copy {
    engine::SegmentRange device;
    uint64_t segment = 0;
    // Shared by neighbours in one piece of memory, which goes with its last copy.
    std::shared_ptr<KeptMemory> memory;  // null: it has no place yet
    uint64_t offset = 0;
    // Then one copy serves several sleeps.
    bool constant = false;  // the program has promised that the block does not change
    bool made = false;      // the copy has the block's contents, and the block has not changed since

    engine::Address end() const { return device.address + device.bytes; }
  };
  using Copies = std::vector<Copy>;  // by address

  // The first copy that ends behind an address. It may begin before the address.
  Copies::iterator From(engine::Address address) COMMPOOL_REQUIRES(kGrowthLock);
  // The copies that the program wants, with the places and bytes that are there already.
  Copies Wanted(const KeptCopies& wanted) COMMPOOL_REQUIRES(kGrowthLock);
  // Whether the block is live, or importers or other ranks may still read it.
  bool MayBeRead(engine::Address block) const;
  // Whether the copy of the block is true: nobody has freed it since.
  bool IsCopied(engine::Address block) const {
    return blocks_.Ask(&engine::Engine::HasMark, block, engine::Mark::kCopied);
  }
  // Makes memory for the copies that have none. Where it fails the caller drops all copies.
  Status MakePlaces(const KeptCopies& wanted, Copies& copies);
  // Afterwards every copy is made, and every file sealed.
  Status CopyAll() COMMPOOL_REQUIRES(kGrowthLock);
  // Find under the locks.
  Result<const std::byte*> FindKept(const engine::SegmentRange& range) COMMPOOL_REQUIRES(kGrowthLock);

  const PoolBasis& basis_;
  BlockStore& blocks_;
  HostCopies transfer_;
  MemoryAccount account_;  // of the memory of all copies
  Copies copies_;
  // Where the present copies lie; another place means new copies.
  KeptIn in_ = KeptIn::kPinned;
  bool retain_ = false;  // LetGo reads it at the next wake
};

}  // namespace commpool::internal
