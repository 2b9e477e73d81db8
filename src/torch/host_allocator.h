// commpool in front of PyTorch's allocator of pinned memory, which pin_memory(), empty(pin_memory=True) and DataLoader
// ask. Pinned tensors that a scope catches go to its pool; all else goes to the allocator that was there before.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "commpool/commpool.h"
#include "src/torch/native.h"

namespace commpool::torch_adapter {

// Makes PyTorch ask us, once and for good: other threads may be using what they asked for. Returns the reason if it
// cannot, else an empty text.
std::string InstallHostAllocator();

// From now on scopes over the pool catch pinned tensors. REQUIRES: the host allocator is installed.
void KnowPinned(commpool_pool pool);

// Owns no memory: each block belongs to PyTorch's allocator or to a pool of ours.
class HostAllocator final : public at::HostAllocator {
 public:
  explicit HostAllocator(at::HostAllocator* native) : native_(native) {}

  c10::DataPtr allocate(size_t bytes) override;
  // The copies that PyTorch submits are recorded here. A block of ours serves again once they have passed.
  bool record_event(void* pointer, void* context, c10::Stream stream) override;

  c10::DeleterFnPtr raw_deleter() const override { return native_->raw_deleter(); }
  bool is_simple_data_ptr(const c10::DataPtr& pointer) const override { return native_->is_simple_data_ptr(pointer); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { native_->copy_data(to, from, bytes); }
  void empty_cache() override { native_->empty_cache(); }
  at::HostStats get_stats() override { return native_->get_stats(); }
  void reset_accumulated_stats() override { native_->reset_accumulated_stats(); }
  void reset_peak_stats() override { native_->reset_peak_stats(); }
#if COMMPOOL_TORCH_AT_LEAST(11)
  void begin_allocate_to_pool(c10::MempoolId_t id, std::function<bool(c10::Stream)> filter) override {
    native_->begin_allocate_to_pool(id, std::move(filter));
  }
  void end_allocate_to_pool(c10::MempoolId_t id) override { native_->end_allocate_to_pool(id); }
  void release_pool(c10::MempoolId_t id) override { native_->release_pool(id); }
#endif
#if COMMPOOL_TORCH_AT_LEAST(14)
  void record_history(bool enabled, c10::CachingDeviceAllocator::CreateContextFn recorder, size_t entries,
                      c10::CachingDeviceAllocator::RecordContext when, bool clear) override {
    native_->record_history(enabled, recorder, entries, when, clear);
  }
  bool is_history_enabled() const override { return native_->is_history_enabled(); }
  std::vector<at::HostSegmentInfo> get_segments() override { return native_->get_segments(); }
  std::vector<c10::CachingDeviceAllocator::TraceEntry> get_traces() override { return native_->get_traces(); }
  void record_external_register(void* pointer, size_t bytes) override {
    native_->record_external_register(pointer, bytes);
  }
  void record_external_unregister(void* pointer) override { native_->record_external_unregister(pointer); }
#endif

 private:
  at::HostAllocator* const native_;
};

}  // namespace commpool::torch_adapter
