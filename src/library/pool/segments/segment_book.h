// SegmentBook: the segments that a pool owns, by number, and the memory that it has set aside. Any thread.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "src/library/backing/backing.h"
#include "src/library/base/mutex.h"
#include "src/library/engine/types.h"
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

// SegmentStore has one, and the pool's modes change it. Lock: its own, a leaf; so statistics and look-ups never wait
// for a driver call.
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

}  // namespace commpool::internal
