// The device memory that a communicator takes for itself: its buffers, which a suspension gives back and whose
// addresses stay, and a part that stays. The sizes are the emulator's choice.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace commpool::internal::emulated_nccl {

// Children that share resources with their parent share its memory too. Communicators own it together, and each leaves
// when it ends: the last one frees it. One thread at a time calls Release and Restore; any thread may ask.
class OwnMemory {
 public:
  // On the current context, which is of `device`. The caller is the first user.
  static ncclResult_t Make(int device, std::shared_ptr<OwnMemory>* made);

  void Join() { users_.fetch_add(1); }
  void Leave();
  bool shared() const { return users_.load() > 1; }

  // Gives the buffers back, and makes them again at their addresses. If Restore fails, they are still away.
  ncclResult_t Release();
  ncclResult_t Restore();

  bool suspended() const { return suspended_.load(); }
  uint64_t suspendable_bytes() const { return buffers_.bytes; }
  uint64_t persistent_bytes() const { return persistent_.bytes; }

 private:
  struct Range {
    CUdeviceptr address = 0;
    size_t bytes = 0;
  };
  explicit OwnMemory(int device) : device_(device) {}

  CUmemAllocationProp Properties() const;
  CUresult Reserve(Range* range, size_t bytes) const;
  CUresult Map(const Range& range) const;

  const int device_;
  Range buffers_;
  Range persistent_;
  std::atomic<int> users_ = 1;
  std::atomic<bool> suspended_ = false;
};

}  // namespace commpool::internal::emulated_nccl
