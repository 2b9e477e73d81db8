#include "src/base/host_reserve.h"

#include <algorithm>
#include <array>
#include <mutex>

namespace commpool::internal {

namespace {

constexpr size_t kMostPieces = 64;

// Pieces of one size. One change of the books takes at most a few small pieces, and one large piece for a list that
// grows.
struct Shelf {
  size_t bytes = 0;
  size_t wanted = 0;
  std::array<void*, kMostPieces> pieces = {};
  size_t count = 0;
};

class Shelves {
 public:
  void* Take(size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Shelf& shelf : shelves_) {
      if (shelf.bytes >= bytes && shelf.count > 0) return shelf.pieces[--shelf.count];
    }
    return nullptr;
  }

  // Notes a request. A list doubles when it grows, so the next request may be twice the largest so far. Returns false
  // where the next Fill must enlarge the reserve.
  bool Cover(size_t bytes) {
    size_t covered = largest_.load(std::memory_order_relaxed);
    if (2 * bytes <= covered) return true;
    while (2 * bytes > covered && !largest_.compare_exchange_weak(covered, 2 * bytes, std::memory_order_relaxed)) {
    }
    return false;
  }

  enum class Level { kFull, kEnough, kTooLow };
  Level Fill() {
    const std::lock_guard<std::mutex> lock(mutex_);
    Level level = Enlarge(shelves_.back());
    for (Shelf& shelf : shelves_) {
      while (shelf.count < shelf.wanted) {
        void* const piece = ::operator new(shelf.bytes, std::nothrow);
        if (piece == nullptr) break;
        shelf.pieces[shelf.count++] = piece;
      }
      if (shelf.count == shelf.wanted) continue;
      level = std::max(level, 2 * shelf.count >= shelf.wanted ? Level::kEnough : Level::kTooLow);
    }
    return level;
  }

 private:
  // Keeps the old reserve until a larger one is there.
  Level Enlarge(Shelf& shelf) {
    const size_t bytes = largest_.load(std::memory_order_relaxed);
    if (shelf.bytes >= bytes) return Level::kFull;
    void* const piece = ::operator new(bytes, std::nothrow);
    if (piece == nullptr) return Level::kTooLow;
    while (shelf.count > 0) ::operator delete(shelf.pieces[--shelf.count]);
    shelf.bytes = bytes;
    shelf.pieces[shelf.count++] = piece;
    return Level::kFull;
  }

  std::mutex mutex_;  // the innermost lock: held for calls of the system's allocator only
  std::atomic<size_t> largest_{32 << 10};
  std::array<Shelf, 4> shelves_ = {{{64, 64}, {256, 32}, {2048, 16}, {32 << 10, 2}}};
};

constinit Shelves shelves;

}  // namespace

constinit std::atomic<bool> HostReserve::full_{false};

bool HostReserve::Refill() {
  // Set it before we count the pieces: a thread that draws one meanwhile then clears it again.
  full_.store(true, std::memory_order_release);
  const Shelves::Level level = shelves.Fill();
  if (level != Shelves::Level::kFull) full_.store(false, std::memory_order_release);
  return level != Shelves::Level::kTooLow;
}

void* HostReserve::Allocate(size_t bytes) {
  if (!shelves.Cover(bytes)) full_.store(false, std::memory_order_release);
  if (void* const memory = ::operator new(bytes, std::nothrow)) return memory;
  void* const memory = shelves.Take(bytes);
  full_.store(false, std::memory_order_release);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace commpool::internal
