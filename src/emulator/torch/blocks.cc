#include "src/emulator/torch/blocks.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <mutex>

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

// Those of the tensors that the program made before its first operation.
void AnnounceEarlierBlocks() {
  for (const auto& segment : c10::cuda::CUDACachingAllocator::snapshot().segments) {
    CUdeviceptr address = segment.address;
    for (const auto& block : segment.blocks) {
      const auto stream = static_cast<CUstream>(segment.stream);
      const bool told = block.allocated && segment.owner_private_pool_id == c10::MempoolId_t{0, 0};
      if (told) TheEmulator().block_begins(address, block.size, stream, segment.device, "PyTorch");
      address += block.size;
    }
  }
}

c10::DeleterFnPtr PinnedDeleter() {
  static const auto deleter = at::getHostAllocator(at::kCUDA)->allocate(0).get_deleter();
  return deleter;
}

void FreePinned(void* context) {
  const auto& block = *static_cast<at::HostBlock<c10::cuda::CUDAStream>*>(context);
  TheEmulator().block_begins(reinterpret_cast<CUdeviceptr>(block.ptr_), block.size_, nullptr, 0, nullptr);
  PinnedDeleter()(context);
}

}  // namespace

void AnnounceBlocks() {
  static std::atomic<bool> announced = false;
  if (announced.load(std::memory_order_acquire) || !LooksForRaces()) return;
  if (!c10::cuda::CUDACachingAllocator::get()->initialized()) return;
  // PyTorch's other allocators, or the program's, tell nobody.
  if (announced.exchange(true) || c10::cuda::CUDACachingAllocator::get()->name() != "native") return;
  c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(Announce);
  AnnounceEarlierBlocks();
}

// The allocator of pinned memory tells nobody of its blocks. A tensor has its deleter until it is announced.
void AnnouncePinned(const at::Tensor& tensor) {
  if (!LooksForRaces() || !tensor.has_storage() || !tensor.is_cpu()) return;
  static std::mutex mutex;  // threads may copy one tensor
  const std::lock_guard<std::mutex> lock(mutex);
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  if (!storage._mutable_data_ptr_no_checks().compare_exchange_deleter(PinnedDeleter(), FreePinned)) return;
  const auto address = reinterpret_cast<CUdeviceptr>(storage.data());
  TheEmulator().block_begins(address, storage.nbytes(), nullptr, 0, "PyTorch, pinned");
}

}  // namespace commpool::internal::emulated_torch
