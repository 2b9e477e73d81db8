// A pool's segments: made, granted to its peers and given back, with the process table kept in step.
//
// Make and Free are the effects, without a lock; the map itself is guarded by the pool's lock, as Put and Take say.
#ifndef COMMPOOL_SRC_POOL_SEGMENT_STORE_H_
#define COMMPOOL_SRC_POOL_SEGMENT_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "commpool/status.h"
#include "src/backing/backing.h"
#include "src/engine/types.h"
#include "src/registration/registration_set.h"

namespace commpool::internal {

class SegmentStore {
 public:
  SegmentStore(std::unique_ptr<Backing> backing, uint64_t alignment)
      : backing_(std::move(backing)), alignment_(alignment) {}

  const Backing& backing() const { return *backing_; }
  Backing& backing() { return *backing_; }

  // A segment granted to every peer, in nobody's books yet. Where a grant fails it is freed again. Calls the driver.
  Result<std::unique_ptr<Segment>> Make(uint64_t bytes, const std::set<int>& peers);

  // The books. REQUIRES: the pool's lock.
  void Put(engine::SegmentIndex index, std::unique_ptr<Segment> segment);
  std::unique_ptr<Segment> Take(engine::SegmentIndex index);
  std::vector<SegmentToRegister> List() const;
  Segment& Get(engine::SegmentIndex index);
  SegmentToRegister At(engine::SegmentIndex index) const;
  uint64_t count() const { return segments_.size(); }
  // Pointers stay valid while the caller keeps segments from being taken (it holds the pool's growth lock).
  std::vector<Segment*> Pointers() const;

 private:
  std::unique_ptr<Backing> backing_;
  const uint64_t alignment_;
  std::map<engine::SegmentIndex, std::unique_ptr<Segment>> segments_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SEGMENT_STORE_H_
