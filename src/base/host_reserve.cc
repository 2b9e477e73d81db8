#include "src/base/host_reserve.h"

#include <algorithm>
#include <array>
#include <mutex>

namespace commpool::internal {

namespace {

constexpr size_t kMostPieces = 64;

// Pieces of one size. One change of the books takes at most a few small pieces, and one large piece for a list that
// grows.
struct PieceSize {
  size_t bytes = 0;
  size_t wanted = 0;
  std::array<void*, kMostPieces> pieces = {};
  size_t count = 0;
};

class Reserve {
 public:
  void* Take(size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (PieceSize& size : sizes_) {
      if (size.bytes >= bytes && size.count > 0) return size.pieces[--size.count];
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
    Level level = Enlarge(sizes_.back());
    for (PieceSize& size : sizes_) {
      while (size.count < size.wanted) {
        void* const piece = ::operator new(size.bytes, std::nothrow);
        if (piece == nullptr) break;
        size.pieces[size.count++] = piece;
      }
      if (size.count == size.wanted) continue;
      level = std::max(level, 2 * size.count >= size.wanted ? Level::kEnough : Level::kTooLow);
    }
    return level;
  }

 private:
  // Keeps the old reserve until a larger one is there.
  Level Enlarge(PieceSize& size) {
    const size_t bytes = largest_.load(std::memory_order_relaxed);
    if (size.bytes >= bytes) return Level::kFull;
    void* const piece = ::operator new(bytes, std::nothrow);
    if (piece == nullptr) return Level::kTooLow;
    while (size.count > 0) ::operator delete(size.pieces[--size.count]);
    size.bytes = bytes;
    size.pieces[size.count++] = piece;
    return Level::kFull;
  }

  std::mutex mutex_;  // the innermost lock: held for calls of the system's allocator only
  std::atomic<size_t> largest_{32 << 10};
  std::array<PieceSize, 4> sizes_ = {{{64, 64}, {256, 32}, {2048, 16}, {32 << 10, 2}}};
};

constinit Reserve reserve;

}  // namespace

constinit std::atomic<bool> HostReserve::full_{false};

bool HostReserve::Refill() {
  // Set it before we count the pieces: a thread that draws one meanwhile then clears it again.
  full_.store(true, std::memory_order_release);
  const Reserve::Level level = reserve.Fill();
  if (level != Reserve::Level::kFull) full_.store(false, std::memory_order_release);
  return level != Reserve::Level::kTooLow;
}

void* HostReserve::Allocate(size_t bytes) {
  if (!reserve.Cover(bytes)) full_.store(false, std::memory_order_release);
  if (void* const memory = ::operator new(bytes, std::nothrow)) return memory;
  void* const memory = reserve.Take(bytes);
  full_.store(false, std::memory_order_release);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace commpool::internal
