// Which pointers came by before: a look takes some nanoseconds and no lock. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace commpool::audit {

class SeenSet {
 public:
  bool Has(const void* pointer) const { return PlaceOf(pointer) == nullptr; }

  // Where there is no room any more, everything counts as seen.
  void Add(const void* pointer) {
    const void* expected = nullptr;
    std::atomic<const void*>* const place = PlaceOf(pointer);
    // Another thread may take the place: then this pointer is measured once more, and added then.
    if (place != nullptr) place->compare_exchange_strong(expected, pointer, std::memory_order_relaxed);
  }

 private:
  static constexpr size_t kPlaces = size_t{1} << 16;  // programs have some thousand kernels
  static constexpr size_t kTries = 64;

  // The free place for a pointer; null for one that is there.
  std::atomic<const void*>* PlaceOf(const void* pointer) const {
    const uint64_t hash = reinterpret_cast<uint64_t>(pointer) * 0x9e3779b97f4a7c15u;
    for (size_t attempt = 0; attempt < kTries; ++attempt) {
      std::atomic<const void*>& place = places_[((hash >> 40) + attempt) % kPlaces];
      const void* const there = place.load(std::memory_order_relaxed);
      if (there == pointer) return nullptr;
      if (there == nullptr) return &place;
    }
    return nullptr;
  }

  mutable std::array<std::atomic<const void*>, kPlaces> places_ = {};
};

}  // namespace commpool::audit
