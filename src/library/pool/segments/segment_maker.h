// SegmentMaker: makes a pool's segments, gives them to its engine, and releases them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "commpool/status.h"
#include "src/library/backing/backing.h"
#include "src/library/engine/types.h"
#include "src/library/pool/basis/pool_basis.h"
#include "src/library/pool/blocks/block_store.h"
#include "src/library/pool/segments/pool_peers.h"
#include "src/library/pool/segments/pool_room.h"
#include "src/library/pool/segments/segment_book.h"
#include "src/library/registration/registration_set.h"

namespace commpool::internal {

// What becomes of a segment's addresses when its memory is released.
enum class Addresses {
  kFree,  // they may be used again
  kKeep,  // nobody may use them until the process ends: another rank may still know what was there
};

// SegmentStore has one. The modes call it. Driver calls run one at a time, under the growth lock.
class SegmentMaker {
 public:
  SegmentMaker(const PoolBasis& basis, BlockStore& blocks, Backing& backing, SegmentBook& book, PoolRoom& room,
               const PoolPeers& peers, const RegistrationSet& registrations)
      : basis_(basis),
        blocks_(blocks),
        backing_(backing),
        book_(book),
        room_(room),
        peers_(peers),
        registrations_(registrations),
        tells_heaps_(basis.runtime.observer.TakesHeapsOf(backing)) {}

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
  // Release for one segment; false where another thread got a block of it meanwhile. Where the driver refuses, the
  // memory is set aside, and its bytes count in `*released` all the same.
  Result<bool> ReleaseOne(engine::SegmentIndex segment, Addresses addresses, uint64_t* released)
      COMMPOOL_REQUIRES(kGrowthLock);
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

  const PoolBasis& basis_;
  BlockStore& blocks_;
  Backing& backing_;
  SegmentBook& book_;
  PoolRoom& room_;
  const PoolPeers& peers_;
  const RegistrationSet& registrations_;
  // Decided once: NCCL's backing may find out later that cudaMalloc makes its memory.
  const bool tells_heaps_;
};

}  // namespace commpool::internal
