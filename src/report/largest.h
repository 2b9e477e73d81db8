// Keeps the largest of many things, in bounded memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "src/library/base/function_ref.h"

namespace commpool::internal::report {

// `Thing` has a `weight`. At most half more than `most` are in memory.
template <typename Thing>
class Largest {
 public:
  explicit Largest(size_t most) : most_(most) {}

  // Calls `left_out` for each thing that has no place any more.
  void Offer(Thing thing, FunctionRef<void(const Thing&)> left_out) {
    things_.push_back(std::move(thing));
    if (things_.size() >= most_ + most_ / 2 + 1) Cut(left_out);
  }
  // Hands out what is kept, in no order.
  std::vector<Thing> Take(FunctionRef<void(const Thing&)> left_out) {
    Cut(left_out);
    return std::exchange(things_, {});
  }

 private:
  void Cut(FunctionRef<void(const Thing&)> left_out) {
    if (things_.size() <= most_) return;
    const auto end = things_.begin() + static_cast<std::ptrdiff_t>(most_);
    std::nth_element(things_.begin(), end, things_.end(),
                     [](const Thing& a, const Thing& b) { return a.weight > b.weight; });
    std::for_each(end, things_.end(), [&](const Thing& thing) { left_out(thing); });
    things_.erase(end, things_.end());
  }

  size_t most_;
  std::vector<Thing> things_;
};

}  // namespace commpool::internal::report
