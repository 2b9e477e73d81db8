// Uses: the streams that may still use a block's memory, ascending, no two equal. Each block has one such list.
//
// Most blocks have at most one use; it lies in the block itself, so that a look at a block and its neighbours touches
// no other memory. Several uses lie in an array. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <vector>

#include "src/library/engine/types.h"

namespace commpool::internal::engine {

inline constexpr Moment kNoMoment = ~Moment{0};

// A stream that may still use a block's memory. There are four kinds. They differ in what another stream has to do
// before it may use the memory too:
//
//   kind       fence  missing_since  another stream ...
//   fenced     set    kNoMoment      waits for the fence
//   unfenced   none   kNoMoment      waits for all work that the stream was given so far
//   stranded   none   kNoMoment      cannot wait, for nobody promised that the stream lives. First a call passes the
//                                    stream again and records a fence (Engine::FenceStream), or the host waits for
//                                    the device (Engine::DeviceIdle)
//   missing    none   the free       mostly waits until the pool has recorded the fence: till then the block is closed.
//                                    An ordered symmetric pool does not close it; then the use counts as unfenced
struct Use {
  StreamKey stream = 0;
  Fence fence = kNoFence;
  // The free whose fence the pool has not recorded yet (Engine::AttachFence, CancelFence). Not the block: by the time
  // the fence is there another free of the same address may miss one.
  Moment missing_since = kNoMoment;

  bool fence_missing() const { return missing_since != kNoMoment; }
  // Also true for a missing fence of a stream that nobody promised.
  bool stranded() const { return fence == kNoFence && IsUnpromised(stream); }
  friend auto operator<=>(const Use&, const Use&) = default;
};

class Uses {
 public:
  Uses() = default;
  // REQUIRES: ascending, no two equal.
  Uses(std::initializer_list<Use> uses) {
    for (const Use& use : uses) push_back(use);
  }

  Uses(const Uses& other) { *this = other; }
  // Without a call for the array where there is none.
  Uses& operator=(const Uses& other) {
    size_ = other.size_;
    one_ = other.one_;
    if (size_ > 1) several_ = other.several_;
    return *this;
  }

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  const Use* begin() const { return size_ <= 1 ? &one_ : several_.data(); }
  const Use* end() const { return begin() + size_; }
  Use* begin() { return size_ <= 1 ? &one_ : several_.data(); }
  Use* end() { return begin() + size_; }
  const Use& front() const { return *begin(); }
  // Mostly one look at the block itself.
  template <typename Is>
  bool Any(Is is) const {
    if (size_ <= 1) return size_ == 1 && is(one_);
    return std::any_of(several_.begin(), several_.end(), is);
  }

  void clear() { size_ = 0; }
  void push_back(const Use& use) {
    if (size_ != 0) return insert(end(), use);
    size_ = 1;
    one_ = use;
  }
  // Inserts before `place`, an element of this object. REQUIRES: it is not empty.
  void insert(const Use* place, const Use& use) {
    ++size_;
    const auto index = place - (size_ == 2 ? &one_ : several_.data());
    if (size_ == 2) several_ = {one_};
    several_.insert(several_.begin() + index, use);
  }
  template <typename Over>
  void EraseIf(Over over) {
    if (size_ <= 1) {
      if (size_ == 1 && over(one_)) size_ = 0;
      return;
    }
    std::erase_if(several_, over);
    size_ = several_.size();
    if (size_ == 1) one_ = several_.front();
  }

  friend bool operator==(const Uses& a, const Uses& b) {
    if (a.size_ != b.size_) return false;
    return a.size_ <= 1 ? a.size_ == 0 || a.one_ == b.one_ : a.several_ == b.several_;
  }

 private:
  size_t size_ = 0;
  Use one_;                   // where there are not several
  std::vector<Use> several_;  // as many as the size says, if that is more than one
};

// Both keep `uses` ascending and without duplicates.
inline void AddUse(Uses& uses, const Use& use) {
  if (uses.empty()) return uses.push_back(use);
  const Use* const place = std::lower_bound(uses.begin(), uses.end(), use);
  if (place == uses.end() || *place != use) uses.insert(place, use);
}
inline void UniteUses(Uses& uses, const Uses& others) {
  if (uses == others) return;
  for (const Use& use : others) AddUse(uses, use);
}

// The uses that `stream` must wait for before it touches the memory. Its own work is in order already. A wait for all
// work of another stream covers that stream's fences.
inline std::vector<StreamUse> WaitsOf(const Uses& uses, StreamKey stream) {
  std::vector<StreamUse> waits;
  for (const Use& use : uses) {
    if (use.stream == stream) continue;
    // Ascending: a stream's use without a fence comes before its uses with one.
    const bool covered = !waits.empty() && waits.back().stream == use.stream && waits.back().fence == kNoFence;
    if (!covered) waits.push_back({use.stream, use.fence});
  }
  return waits;
}

}  // namespace commpool::internal::engine
