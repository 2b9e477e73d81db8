// What pools have reserved together at one placement (a device, or a host NUMA node), against a limit. Any thread.
#ifndef COMMPOOL_SRC_POOL_SHARED_MEMORY_ACCOUNT_H_
#define COMMPOOL_SRC_POOL_SHARED_MEMORY_ACCOUNT_H_

#include <cstdint>
#include <string>
#include <utility>

#include "src/base/mutex.h"

namespace commpool::internal {

class MemoryAccount {
 public:
  // `place`: "device 1", for messages. `capacity`: the memory that is there, UINT64_MAX where that is not known.
  explicit MemoryAccount(std::string place = "", uint64_t capacity = UINT64_MAX)
      : place_(std::move(place)), capacity_(capacity) {}

  const std::string& place() const { return place_; }
  uint64_t capacity() const { return capacity_; }
  void SetLimit(uint64_t bytes);

  // Whether the bytes fit under the limit; then they are taken, until they are returned.
  bool Take(uint64_t bytes);
  void Return(uint64_t bytes);
  // What Take would still grant.
  uint64_t Room() const;
  uint64_t limit() const;
  uint64_t taken() const;

 private:
  const std::string place_;
  const uint64_t capacity_;
  mutable Mutex mutex_{LockRank::kLeaf};
  uint64_t limit_ COMMPOOL_GUARDED_BY(mutex_) = UINT64_MAX;
  uint64_t taken_ COMMPOOL_GUARDED_BY(mutex_) = 0;
};

// Bytes taken from an account, returned at the end of its life unless they are kept. Move-only.
class Room {
 public:
  Room() = default;
  Room(MemoryAccount& account, uint64_t bytes) : account_(&account), bytes_(bytes) {}  // REQUIRES: just taken
  Room(Room&& other) noexcept : account_(std::exchange(other.account_, nullptr)), bytes_(other.bytes_) {}
  Room& operator=(Room&& other) noexcept {
    std::swap(account_, other.account_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Room() {
    if (account_ != nullptr) account_->Return(bytes_);
  }

  // The memory exists and its owner returns the bytes later.
  void Keep() { account_ = nullptr; }

 private:
  MemoryAccount* account_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SHARED_MEMORY_ACCOUNT_H_
