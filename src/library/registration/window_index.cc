#include "src/library/registration/window_index.h"

#include <algorithm>
#include <bit>

#include "src/library/base/check.h"

namespace commpool::internal {

namespace {

constexpr size_t kFirstCapacity = 16;

// How many pages of windows a table of so many holds.
constexpr size_t MostPages(size_t windows) { return 4 * windows + 64; }

uint64_t FirstPage(const RegisteredWindow& window, uint32_t shift) { return window.address >> shift; }
uint64_t LastPage(const RegisteredWindow& window, uint32_t shift) {
  return (window.address + window.bytes - 1) >> shift;
}

uint64_t PagesOf(const std::vector<RegisteredWindow>& windows, uint32_t shift) {
  uint64_t pages = 0;
  for (const RegisteredWindow& window : windows) pages += LastPage(window, shift) - FirstPage(window, shift) + 1;
  return pages;
}

// Pages as large as the smallest window, so that few windows share one; larger where the largest would have too many.
uint32_t ChoosePageShift(const std::vector<RegisteredWindow>& windows) {
  uint64_t least = UINT64_MAX;
  for (const RegisteredWindow& window : windows) least = std::min(least, window.bytes);
  uint32_t shift = static_cast<uint32_t>(std::bit_width(least)) - 1;
  while (shift < 63 && PagesOf(windows, shift) > MostPages(windows.size())) ++shift;
  return shift;
}

}  // namespace

WindowTable::WindowTable(size_t capacity)
    : capacity_(capacity),
      slots_(std::bit_ceil(2 * MostPages(capacity))),
      entries_(std::make_unique<Entry[]>(capacity)) {}

void WindowTable::Overwrite(const std::vector<RegisteredWindow>& windows) {
  COMMPOOL_CHECK(windows.size() <= capacity_, "a table holds no more windows than it was made for");
  const uint64_t before = version_.load(std::memory_order_relaxed);
  version_.store(before + 1, std::memory_order_relaxed);

  for (std::atomic<uint32_t>& slot : slots_) slot.store(0, std::memory_order_release);
  const uint32_t page_shift = ChoosePageShift(windows);
  const uint64_t slots = std::bit_ceil(std::max<uint64_t>(2 * PagesOf(windows, page_shift), 2));
  const uint64_t mask = slots - 1;
  const auto hash_shift = static_cast<uint32_t>(64 - std::countr_zero(slots));
  page_shift_.store(page_shift, std::memory_order_release);
  hash_shift_.store(hash_shift, std::memory_order_release);
  mask_.store(mask, std::memory_order_release);
  for (uint32_t index = 0; index < windows.size(); ++index) {
    const RegisteredWindow& window = windows[index];
    Entry& entry = entries_[index];
    entry.address.store(window.address, std::memory_order_release);
    entry.bytes.store(window.bytes, std::memory_order_release);
    entry.communicator.store(window.communicator, std::memory_order_release);
    entry.window.store(window.window, std::memory_order_release);
    for (uint64_t page = FirstPage(window, page_shift); page <= LastPage(window, page_shift); ++page) {
      uint64_t slot = HashOf(window.communicator, page) >> hash_shift;
      while (slots_[slot & mask].load(std::memory_order_relaxed) != 0) ++slot;
      slots_[slot & mask].store(index + 1, std::memory_order_release);
    }
  }
  version_.store(before + 2, std::memory_order_release);
}

WindowIndex::WindowIndex() {
  MutexLock lock(mutex_);
  for (int table = 0; table < 2; ++table) tables_.push_back(std::make_unique<WindowTable>(kFirstCapacity));
  published_.store(tables_[0].get(), std::memory_order_release);
  spare_ = tables_[1].get();
}

void WindowIndex::Publish() {
  if (windows_.size() > spare_->capacity()) {
    tables_.push_back(std::make_unique<WindowTable>(std::bit_ceil(windows_.size())));
    spare_ = tables_.back().get();
  }
  spare_->Overwrite(windows_);
  spare_ = published_.exchange(spare_, std::memory_order_acq_rel);
}

void WindowIndex::Add(const RegisteredWindow& window) {
  MutexLock lock(mutex_);
  windows_.push_back(window);
  Publish();
}

void WindowIndex::Remove(ncclComm_t communicator, CUdeviceptr address) {
  MutexLock lock(mutex_);
  const size_t removed = std::erase_if(windows_, [&](const RegisteredWindow& window) {
    return window.communicator == communicator && window.address == address;
  });
  if (removed != 0) Publish();
}

size_t WindowIndex::tables() const {
  MutexLock lock(mutex_);
  return tables_.size();
}

}  // namespace commpool::internal
