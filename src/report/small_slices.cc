#include "src/report/small_slices.h"

#include <algorithm>

namespace commpool::internal::report {

size_t SmallSlices::ClassOf(uint64_t block_bytes) {
  const auto found = std::find(classes_.begin(), classes_.end(), block_bytes);
  if (found != classes_.end()) return static_cast<size_t>(found - classes_.begin());
  if (classes_.size() == kMostClasses) return kMostClasses;
  classes_.push_back(block_bytes);
  cached_.push_back(0);
  return classes_.size() - 1;
}

void SmallSlices::Append(int64_t time, uint64_t block_bytes, uint64_t served, uint64_t cached) {
  const size_t place = ClassOf(block_bytes);
  if (place == kMostClasses) return;
  cached_[place] = cached;
  // An entry is written at its slice's end.
  const int64_t begin = (time > 0 ? time - 1 : 0) / width_ * width_;
  if (slices_.empty() || slices_.back().begin < begin) slices_.push_back({.begin = begin, .served = {}, .cached = {}});
  Slice& slice = slices_.back();
  slice.served.resize(classes_.size());
  slice.served[place] += served;
  slice.cached = cached_;
  while (slices_.size() > kMostSlices) Widen();
}

void SmallSlices::Widen() {
  width_ *= 2;
  size_t kept = 0;
  for (size_t index = 0; index < slices_.size(); ++index) {
    Slice slice = std::move(slices_[index]);
    slice.begin = slice.begin / width_ * width_;
    if (kept == 0 || slices_[kept - 1].begin != slice.begin) {
      slices_[kept++] = std::move(slice);
      continue;
    }
    Slice& joined = slices_[kept - 1];
    joined.served.resize(std::max(joined.served.size(), slice.served.size()));
    for (size_t place = 0; place < slice.served.size(); ++place) joined.served[place] += slice.served[place];
    joined.cached = std::move(slice.cached);
  }
  slices_.resize(kept);
}

void SmallSlices::Thin(size_t slices) {
  while (slices_.size() > std::max<size_t>(slices, 1)) Widen();
}

std::vector<SmallSlices::Slice> SmallSlices::Slices() const {
  std::vector<Slice> whole;
  for (const Slice& slice : slices_) {
    // Nothing was served since the end of the slice before.
    if (!whole.empty() && whole.back().begin + width_ < slice.begin) {
      whole.push_back({whole.back().begin + width_, {}, whole.back().cached});
    }
    whole.push_back(slice);
  }
  for (Slice& slice : whole) {
    slice.served.resize(classes_.size());
    slice.cached.resize(classes_.size());
  }
  return whole;
}

}  // namespace commpool::internal::report
