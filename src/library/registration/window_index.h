// WindowIndex: finds the window that holds a pointer on a communicator, for all pools of a process. It takes no lock,
// calls no driver and writes nothing, so any number of threads can look at once (rule 3).
//
// Two tables take turns: a change writes the one that is not published, then publishes it. A reader that is overtaken
// by two changes sees that its table's version moved, and looks again; it never waits for a writer. Tables that grew
// too small stay until the index ends, because a reader may still look: together they are no larger than the last two.
// Any thread.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "src/library/base/mutex.h"

namespace commpool::internal {

struct WindowPlace {
  ncclWindow_t window = nullptr;
  uint64_t offset = 0;
};

struct RegisteredWindow {
  ncclComm_t communicator = nullptr;
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  ncclWindow_t window = nullptr;
};

// One version of all windows: a hash table of the pages that they cover, in memory that never moves. A reader may look
// at it while a writer overwrites it, and throws away what it found because the version has changed. One writer at a
// time; any reader.
class WindowTable {
 public:
  explicit WindowTable(size_t capacity);

  size_t capacity() const { return capacity_; }

  // The version is even while the table is whole; what a reader finds between two readings of one even version is
  // right.
  uint64_t version() const { return version_.load(std::memory_order_acquire); }

  std::optional<WindowPlace> Find(ncclComm_t communicator, CUdeviceptr address) const {
    const uint64_t page = address >> page_shift_.load(std::memory_order_acquire);
    uint64_t slot = HashOf(communicator, page) >> hash_shift_.load(std::memory_order_acquire);
    const uint64_t mask = mask_.load(std::memory_order_acquire);
    // Half of the slots are empty; the bound is for a table that is overwritten meanwhile.
    for (const uint64_t end = slot + mask; slot <= end; ++slot) {
      const uint32_t number = slots_[slot & mask].load(std::memory_order_acquire);
      if (number == 0) return std::nullopt;
      const Entry& entry = entries_[number - 1];
      const uint64_t offset = address - entry.address.load(std::memory_order_acquire);
      if (offset >= entry.bytes.load(std::memory_order_acquire)) continue;
      if (entry.communicator.load(std::memory_order_acquire) != communicator) continue;
      return WindowPlace{entry.window.load(std::memory_order_acquire), offset};
    }
    return std::nullopt;
  }

  // REQUIRES: no more than the capacity; one thread.
  void Overwrite(const std::vector<RegisteredWindow>& windows);

 private:
  // The part of a window that readers see. Release and acquire: a reader that sees a new value sees the odd version
  // too.
  struct Entry {
    std::atomic<CUdeviceptr> address{0};
    std::atomic<uint64_t> bytes{0};
    std::atomic<ncclComm_t> communicator{nullptr};
    std::atomic<ncclWindow_t> window{nullptr};
  };

  // Spreads neighbouring pages of one communicator, and communicators of one page.
  static uint64_t HashOf(ncclComm_t communicator, uint64_t page) {
    const auto bits = reinterpret_cast<uint64_t>(communicator);
    return (page + bits * 0xd6e8feb86659fd93) * 0x9e3779b97f4a7c15;
  }

  const size_t capacity_;
  std::atomic<uint64_t> version_{0};
  std::atomic<uint32_t> page_shift_{0};
  std::atomic<uint32_t> hash_shift_{63};
  std::atomic<uint64_t> mask_{0};
  std::vector<std::atomic<uint32_t>> slots_;  // 0 is empty, else the entry's place and one
  const std::unique_ptr<Entry[]> entries_;
};

class WindowIndex {
 public:
  WindowIndex();

  // REQUIRES: it is not empty and overlaps no other window of its communicator.
  void Add(const RegisteredWindow& window);
  // Does nothing where there is no such window.
  void Remove(ncclComm_t communicator, CUdeviceptr address);

  // Nothing where no window of the communicator holds the address.
  std::optional<WindowPlace> Find(ncclComm_t communicator, CUdeviceptr address) const {
    while (true) {
      const WindowTable& table = *published_.load(std::memory_order_acquire);
      const uint64_t version = table.version();
      const std::optional<WindowPlace> place = table.Find(communicator, address);
      if (version % 2 == 0 && table.version() == version) return place;
    }
  }

  // All tables that were ever made: the index keeps them.
  size_t tables() const;

 private:
  void Publish() COMMPOOL_REQUIRES(mutex_);

  mutable Mutex mutex_{LockRank::kLeaf};
  std::vector<RegisteredWindow> windows_ COMMPOOL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<WindowTable>> tables_ COMMPOOL_GUARDED_BY(mutex_);
  WindowTable* spare_ COMMPOOL_GUARDED_BY(mutex_);  // the one that is not published
  std::atomic<WindowTable*> published_;
};

}  // namespace commpool::internal
