#include "src/emulator/torch/blocks.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>

#include "src/emulator/torch/emulator.h"
#include "src/emulator/torch/python_frames.h"

namespace commpool::internal::emulated_torch {

namespace {

using Entry = c10::CachingDeviceAllocator::TraceEntry;

// Runs under the allocator's lock, so it may not take Python's. Blocks of private pools are left out: a graph goes on
// using those that the program has freed.
void Announce(const Entry& entry) {
  if (entry.mempool_ != c10::MempoolId_t{0, 0}) return;
  const auto stream = static_cast<CUstream>(entry.stream_);
  const auto address = static_cast<CUdeviceptr>(entry.addr_);
  if (entry.action_ == Entry::ALLOC) {
    TheEmulator().block_begins(address, entry.size_, stream, entry.device_, "PyTorch");
  } else if (entry.action_ == Entry::FREE_COMPLETED && !PythonEnds()) {
    const char* const place = PythonPlaceIfLocked();
    const char* const before = place == nullptr ? nullptr : TheEmulator().issued_at(place);
    TheEmulator().block_ends(address, stream, entry.device_);
    if (place != nullptr) TheEmulator().issued_at(before);
  }
}

}  // namespace

void AnnounceBlocks() {
  static std::atomic<bool> announced = false;
  if (announced.load(std::memory_order_acquire) || !LooksForRaces()) return;
  if (!c10::cuda::CUDACachingAllocator::get()->initialized()) return;
  if (!announced.exchange(true)) c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(Announce);
}

}  // namespace commpool::internal::emulated_torch
