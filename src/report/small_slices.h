// The small blocks that threads' caches served and hold, in slices of time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace commpool::internal::report {

class SmallSlices {
 public:
  static constexpr size_t kMostClasses = 1024;  // a damaged file may name any size
  static constexpr size_t kMostSlices = 400;

  struct Slice {
    int64_t begin = 0;
    std::vector<uint64_t> served;  // by class
    std::vector<uint64_t> cached;  // by class, at the slice's end
  };

  // Times never fall. `served` since the last entry of that class, `cached` now.
  void Append(int64_t time, uint64_t block_bytes, uint64_t served, uint64_t cached);
  void Thin(size_t slices);

  // Sizes of blocks, in the order of their first entry.
  const std::vector<uint64_t>& classes() const { return classes_; }
  // Each with an element a class.
  std::vector<Slice> Slices() const;
  // How many blocks each class has in caches now.
  const std::vector<uint64_t>& cached() const { return cached_; }

 private:
  // kMostClasses where there are too many.
  size_t ClassOf(uint64_t block_bytes);
  void Widen();

  int64_t width_ = 100'000'000;  // ns: the recorder writes so often
  std::vector<uint64_t> classes_;
  std::vector<uint64_t> cached_;
  std::vector<Slice> slices_;
};

}  // namespace commpool::internal::report
