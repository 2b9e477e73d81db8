#include "src/pool/segment_store.h"

#include <utility>

#include "src/base/check.h"

namespace commpool::internal {

Result<std::unique_ptr<Segment>> SegmentStore::Make(uint64_t bytes, const std::set<int>& peers) {
  Result<std::unique_ptr<Segment>> segment = backing_->Make(bytes);
  if (!segment.ok()) return segment;
  if ((*segment)->address() % alignment_ != 0) {
    return Status(StatusCode::kInvalidArgument, std::string("the ") + backing_->name() +
                                                    " backing returned an address that is no multiple of the pool's "
                                                    "alignment of " +
                                                    std::to_string(alignment_) + " bytes");
  }
  for (const int peer : peers) {
    Status status = (*segment)->Grant(peer);
    if (!status.ok()) return status;
  }
  return segment;
}

void SegmentStore::Put(engine::SegmentIndex index, std::unique_ptr<Segment> segment) {
  const bool added = segments_.emplace(index, std::move(segment)).second;
  COMMPOOL_CHECK(added, "a segment's number is used twice");
}

std::unique_ptr<Segment> SegmentStore::Take(engine::SegmentIndex index) {
  auto node = segments_.extract(index);
  COMMPOOL_CHECK(!node.empty(), "a segment is taken twice");
  return std::move(node.mapped());
}

Segment& SegmentStore::Get(engine::SegmentIndex index) {
  const auto found = segments_.find(index);
  COMMPOOL_CHECK(found != segments_.end(), "a segment is missing from its pool");
  return *found->second;
}

std::vector<SegmentToRegister> SegmentStore::List() const {
  std::vector<SegmentToRegister> list;
  for (const auto& [index, segment] : segments_) list.push_back({index, segment->address(), segment->bytes()});
  return list;
}

SegmentToRegister SegmentStore::At(engine::SegmentIndex index) const {
  const auto found = segments_.find(index);
  COMMPOOL_CHECK(found != segments_.end(), "a segment is missing from its pool");
  return {index, found->second->address(), found->second->bytes()};
}

std::vector<Segment*> SegmentStore::Pointers() const {
  std::vector<Segment*> pointers;
  for (const auto& [index, segment] : segments_) pointers.push_back(segment.get());
  return pointers;
}

}  // namespace commpool::internal
