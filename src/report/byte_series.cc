#include "src/report/byte_series.h"

#include <algorithm>

namespace commpool::internal::report {

uint64_t ByteSeries::BytesOf(const BytePoint& point, size_t kind) {
  return kind == 0 ? point.reserved : kind == 1 ? point.allocated : point.cached;
}

void ByteSeries::Join(Bucket& bucket, const Bucket& later) {
  for (size_t kind = 0; kind < kKinds; ++kind) {
    Placed& least = bucket.least[kind];
    Placed& most = bucket.most[kind];
    if (BytesOf(later.least[kind].point, kind) < BytesOf(least.point, kind)) least = later.least[kind];
    if (BytesOf(later.most[kind].point, kind) > BytesOf(most.point, kind)) most = later.most[kind];
  }
  bucket.last = later.last;
}

void ByteSeries::Append(const BytePoint& point) {
  if (buckets_.empty()) begin_ = point.time;
  const Placed placed{point, next_place_++};
  const Bucket fresh{(point.time - begin_) / width_, {placed, placed, placed}, {placed, placed, placed}, placed};
  if (!buckets_.empty() && buckets_.back().number >= fresh.number) {
    Join(buckets_.back(), fresh);
    return;
  }
  buckets_.push_back(fresh);
  while (buckets_.size() > kMostBuckets) Widen();
}

void ByteSeries::Widen() {
  width_ *= 2;
  size_t kept = 0;
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    buckets_[bucket].number /= 2;
    if (kept > 0 && buckets_[kept - 1].number == buckets_[bucket].number) {
      Join(buckets_[kept - 1], buckets_[bucket]);
    } else {
      buckets_[kept++] = buckets_[bucket];
    }
  }
  buckets_.resize(kept);
}

void ByteSeries::Thin(size_t buckets) {
  while (buckets_.size() > buckets) Widen();
}

std::vector<BytePoint> ByteSeries::Points() const {
  std::vector<Placed> kept;
  for (const Bucket& bucket : buckets_) {
    kept.insert(kept.end(), bucket.least.begin(), bucket.least.end());
    kept.insert(kept.end(), bucket.most.begin(), bucket.most.end());
    kept.push_back(bucket.last);
  }
  std::sort(kept.begin(), kept.end(), [](const Placed& a, const Placed& b) { return a.place < b.place; });
  const auto same = [](const Placed& a, const Placed& b) { return a.place == b.place; };
  kept.erase(std::unique(kept.begin(), kept.end(), same), kept.end());
  std::vector<BytePoint> points;
  points.reserve(kept.size());
  for (const Placed& placed : kept) points.push_back(placed.point);
  return points;
}

}  // namespace commpool::internal::report
