// Host memory that is put aside, so that a change of the books never fails half-way.
//
// Containers that change in such a step take `ReservedAllocator`. It asks the system first, and draws on the reserve
// only where the system has nothing. Each call of the library begins with Fill(); where Fill fails, nothing has changed
// yet. So a free succeeds on a host without memory. Any thread.
//
// The process has one reserve, an exception to "no mutable globals": the allocator of a container carries no state.
#ifndef COMMPOOL_SRC_BASE_HOST_RESERVE_H_
#define COMMPOOL_SRC_BASE_HOST_RESERVE_H_

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <new>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace commpool::internal {

class HostReserve {
 public:
  // Refills what was drawn. False where the system has no memory and the reserve is too low: then begin no change.
  static bool Fill() { return full_.load(std::memory_order_acquire) || Refill(); }

  // Throws std::bad_alloc where neither the system nor the reserve has memory. The system's free() takes the result.
  [[nodiscard]] static void* Allocate(size_t bytes);
  static void Free(void* memory) { ::operator delete(memory); }

 private:
  static bool Refill();

  static std::atomic<bool> full_;
};

template <typename T>
struct ReservedAllocator {
  using value_type = T;

  ReservedAllocator() = default;
  template <typename Other>
  ReservedAllocator(const ReservedAllocator<Other>&) {}  // NOLINT: allocators convert

  [[nodiscard]] T* allocate(size_t count) {
    static_assert(alignof(T) <= alignof(std::max_align_t));
    return static_cast<T*>(HostReserve::Allocate(count * sizeof(T)));
  }
  void deallocate(T* memory, size_t) { HostReserve::Free(memory); }

  friend bool operator==(const ReservedAllocator&, const ReservedAllocator&) { return true; }
};

template <typename T>
using ReservedVector = std::vector<T, ReservedAllocator<T>>;
template <typename T>
using ReservedDeque = std::deque<T, ReservedAllocator<T>>;
template <typename T>
using ReservedSet = std::set<T, std::less<T>, ReservedAllocator<T>>;
template <typename T>
using ReservedMultiset = std::multiset<T, std::less<T>, ReservedAllocator<T>>;
template <typename Key, typename T>
using ReservedMap = std::map<Key, T, std::less<Key>, ReservedAllocator<std::pair<const Key, T>>>;
template <typename Key, typename T>
using ReservedHashMap =
    std::unordered_map<Key, T, std::hash<Key>, std::equal_to<Key>, ReservedAllocator<std::pair<const Key, T>>>;

// The base of classes whose objects such a step makes with `new`.
struct MadeFromReserve {
  static void* operator new(size_t bytes) { return HostReserve::Allocate(bytes); }
  static void operator delete(void* memory) { HostReserve::Free(memory); }
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_HOST_RESERVE_H_
