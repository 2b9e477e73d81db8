// Uses: the streams that may still use a block's memory, ascending, no two equal. Each block has one such list.
//
// Most blocks have at most one use; it lies in the block itself, so that a look at a block and its neighbours touches
// no other memory. Several uses lie in an array. Not thread-safe.
#ifndef COMMPOOL_SRC_LIBRARY_ENGINE_USES_H_
#define COMMPOOL_SRC_LIBRARY_ENGINE_USES_H_

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <utility>
#include <vector>

#include "src/library/engine/types.h"

namespace commpool::internal::engine {

inline constexpr Address kNoBlock = ~Address{0};

// A stream that may still use a block's memory. There are four kinds. They differ in what another stream has to do
// before it may use the memory too:
//
//   kind       fence  missing_for  another stream ...
//   fenced     set    kNoBlock     waits for the fence
//   unfenced   none   kNoBlock     waits for all work that the stream was given so far
//   stranded   none   kNoBlock     cannot wait, because nobody promised that the stream lives. First a call passes the
//                                  stream again and records a fence (Engine::FenceStream), or the host waits for the
//                                  device (Engine::DeviceIdle)
//   missing    none   a block      mostly waits until the pool has recorded the fence: until then the block is closed.
//                                  An ordered symmetric pool does not close it; then the use counts as unfenced
struct Use {
  StreamKey stream = 0;
  Fence fence = kNoFence;
  // The address of the freed block whose fence the pool has not recorded yet (Engine::AttachFence, CancelFence).
  Address missing_for = kNoBlock;

  bool fence_missing() const { return missing_for != kNoBlock; }
  // Also true for a missing fence of a stream that nobody promised.
  bool stranded() const { return fence == kNoFence && IsUnpromised(stream); }
  friend auto operator<=>(const Use&, const Use&) = default;
};

class Uses {
 public:
  Uses() = default;
  // REQUIRES: ascending, no two equal.
  Uses(std::initializer_list<Use> uses) {
    for (const Use& use : uses) insert(end(), use);
  }

  bool empty() const { return !has_one_ && several_.empty(); }
  size_t size() const { return has_one_ ? 1 : several_.size(); }
  const Use* begin() const { return has_one_ ? &one_ : several_.data(); }
  const Use* end() const { return begin() + size(); }
  Use* begin() { return has_one_ ? &one_ : several_.data(); }
  Use* end() { return begin() + size(); }
  const Use& front() const { return *begin(); }

  void clear() {
    has_one_ = false;
    several_.clear();
  }
  void push_back(const Use& use) {
    if (!empty()) return insert(end(), use);
    one_ = use;
    has_one_ = true;
  }
  // Inserts before `place`, an element of this object.
  void insert(const Use* place, const Use& use) {
    if (empty()) return push_back(use);
    const auto index = place - std::as_const(*this).begin();
    if (has_one_) several_.push_back(one_);
    has_one_ = false;
    several_.insert(several_.begin() + index, use);
  }
  template <typename Over>
  void EraseIf(Over over) {
    has_one_ = has_one_ && !over(one_);
    std::erase_if(several_, over);
  }

  friend bool operator==(const Uses& a, const Uses& b) {
    if (a.has_one_ && b.has_one_) return a.one_ == b.one_;
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  bool has_one_ = false;  // then it has no others
  Use one_;
  std::vector<Use> several_;
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_LIBRARY_ENGINE_USES_H_
