// A pool's bytes over time, as a step function of which only the outlines stay.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace commpool::internal::report {

struct BytePoint {
  int64_t time = 0;
  uint64_t reserved = 0;
  uint64_t allocated = 0;
  uint64_t requested = 0;
  uint64_t cached = 0;
  uint64_t pending = 0;
};

// Of each bucket of time it keeps the points with the least and the most bytes of each kind, and the last. Buckets get
// wider as time goes on, so memory is bounded.
class ByteSeries {
 public:
  static constexpr size_t kMostBuckets = 300;

  // Times never fall.
  void Append(const BytePoint& point);
  // Keeps at most so many buckets. REQUIRES: buckets > 0.
  void Thin(size_t buckets);
  // In the order of time.
  std::vector<BytePoint> Points() const;

 private:
  static constexpr size_t kKinds = 3;  // reserved, allocated, cached: the others go with allocated ones
  struct Placed {
    BytePoint point;
    uint64_t place = 0;  // in the order of Append
  };
  struct Bucket {
    int64_t number = 0;
    std::array<Placed, kKinds> least;
    std::array<Placed, kKinds> most;
    Placed last;
  };
  static uint64_t BytesOf(const BytePoint& point, size_t kind);
  static void Join(Bucket& bucket, const Bucket& later);
  void Widen();

  int64_t begin_ = 0;
  int64_t width_ = 1000;  // ns
  uint64_t next_place_ = 0;
  std::vector<Bucket> buckets_;
};

}  // namespace commpool::internal::report
