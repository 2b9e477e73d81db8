// NewSegment: a segment that exists but that no engine knows yet. Its addresses are claimed, the pool's peers have
// access, and its bytes count. Unless a pool adopts it, its destructor releases it with its room and addresses.
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

  // Gives the segment to the pool, which returns the room when it releases the segment.
  std::unique_ptr<Segment> Adopt() {
    room_.Keep();
    claim_.Keep();
    return std::move(segment_);
  }

  // Releases the memory, and keeps the addresses out of use: another rank may still know what was there.
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
  AddressTable::Claim claim_;  // ends first: once the segment has gone the driver may give its addresses to others
};

// A list, because its nodes move to another list without an allocation: so an undo cannot run out of host memory.
using NewSegments = std::list<NewSegment, ReservedAllocator<NewSegment>>;

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SEGMENTS_NEW_SEGMENT_H_
