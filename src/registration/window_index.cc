#include "src/registration/window_index.h"

#include <bit>
#include <utility>

#include "src/base/check.h"

namespace commpool::internal {

namespace {

constexpr size_t kFirstCapacity = 16;

}  // namespace

WindowIndex::WindowIndex() {
  MutexLock lock(mutex_);
  current_ = MakeTable(kFirstCapacity);
  spare_ = MakeTable(kFirstCapacity);
  published_.store(current_, std::memory_order_release);
}

WindowTable* WindowIndex::MakeTable(size_t capacity) {
  tables_.push_back(std::make_unique<WindowTable>(capacity));
  return tables_.back().get();
}

void WindowIndex::Publish() {
  if (windows_.size() > spare_->capacity()) spare_ = MakeTable(std::bit_ceil(windows_.size()));
  COMMPOOL_CHECK(spare_ != published_.load(std::memory_order_relaxed), "readers would wait for the table's writer");
  spare_->Overwrite(windows_);
  published_.store(spare_, std::memory_order_release);
  std::swap(current_, spare_);
}

void WindowIndex::MakeRoom() {
  MutexLock lock(mutex_);
  if (windows_.size() + 1 > spare_->capacity()) spare_ = MakeTable(std::bit_ceil(windows_.size() + 1));
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
