// A segment in no engine's books yet: made, its addresses claimed, granted to the pool's peers, and paid for. It goes
// back at the end of its life, its room and addresses with it, unless a pool adopts it.
#ifndef COMMPOOL_SRC_POOL_SEGMENTS_NEW_SEGMENT_H_
#define COMMPOOL_SRC_POOL_SEGMENTS_NEW_SEGMENT_H_

#include <list>
#include <memory>
#include <utility>

#include "src/backing/backing.h"
#include "src/base/host_reserve.h"
#include "src/pool/shared/address_table.h"
#include "src/pool/shared/memory_account.h"

namespace commpool::internal {

class NewSegment {
 public:
  NewSegment() = default;
  NewSegment(Room room, std::unique_ptr<Segment> segment, AddressTable::Claim claim)
      : room_(std::move(room)), segment_(std::move(segment)), claim_(std::move(claim)) {}

  explicit operator bool() const { return segment_ != nullptr; }
  Segment* operator->() const { return segment_.get(); }

  // The pool's from now on; it returns the room when it gives the segment back.
  std::unique_ptr<Segment> Adopt() {
    room_.Keep();
    claim_.Keep();
    return std::move(segment_);
  }

  // Gives the memory back, and keeps its addresses out of use: another rank may still know what was there.
  Status Release() {
    segment_->KeepAddresses();
    Status status = segment_->Release();
    if (!status.ok()) room_.Keep();  // it is mapped still
    return status;
  }

  // The memory stays until the process ends, and so does its room: somebody may still use it.
  void Abandon() {
    segment_->Abandon();
    room_.Keep();
  }

 private:
  Room room_;  // returned after the segment is gone
  std::unique_ptr<Segment> segment_;
  AddressTable::Claim claim_;  // ends first: the driver may give the addresses to others once the segment is gone
};

// In nodes, which move from list to list without an allocation: an undo cannot run short of memory.
using NewSegments = std::list<NewSegment, ReservedAllocator<NewSegment>>;

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SEGMENTS_NEW_SEGMENT_H_
