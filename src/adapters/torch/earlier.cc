#include "src/adapters/torch/earlier.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <exception>
#include <iterator>
#include <vector>

#include "src/adapters/torch/commpool_calls.h"
#include "src/adapters/torch/forever.h"
#include "src/adapters/torch/history.h"
#include "src/adapters/torch/known_pools.h"
#include "src/adapters/torch/native.h"

namespace commpool::torch_adapter {
namespace {

// Makes a device current, and later the previous one again, but creates no context for that.
using OnDevice = c10::cuda::CUDAGuard;

void MakeCurrent(int device) { c10::cuda::SetDevice(static_cast<c10::DeviceIndex>(device)); }

// Owns a block of PyTorch's own on the current device, for ReachedFrom.
class NativeBlock {
 public:
  NativeBlock() : pointer_(Native()->raw_alloc_with_stream(1, nullptr)) {}
  ~NativeBlock() { Native()->raw_delete(pointer_); }
  NativeBlock(const NativeBlock&) = delete;
  NativeBlock& operator=(const NativeBlock&) = delete;

  // For memory that the current device cannot reach, CUDA returns null instead of the address.
  bool IsReachedFrom(int device) const {
    MakeCurrent(device);
    cudaPointerAttributes attributes = {};
    if (cudaPointerGetAttributes(&attributes, pointer_) == cudaSuccess) return attributes.devicePointer != nullptr;
    static_cast<void>(cudaGetLastError());  // the answer is unknown: count it as reached
    return true;
  }

 private:
  void* pointer_;
};

// PyTorch makes peers only of devices that have contexts, and does not create one for this question.
std::vector<int> DevicesInUse() {
  std::vector<int> devices;
  const int count = std::min<int>(c10::cuda::device_count(), KnownPools::kDevices);
  for (int device = 0; device < count; ++device)
    if (c10::cuda::hasPrimaryContext(static_cast<c10::DeviceIndex>(device))) devices.push_back(device);
  return devices;
}

// Returns the devices that reach the owner's memory, because a kernel there may get a tensor of ours here. PyTorch asks
// once for each pair of devices, and does not tell the answer.
std::vector<int> ReachedFrom(int owner, const std::vector<int>& devices) try {
  const OnDevice on_owner(static_cast<c10::DeviceIndex>(owner));
  const NativeBlock block;
  std::vector<int> peers;
  std::copy_if(devices.begin(), devices.end(), std::back_inserter(peers),
               [&](int device) { return device != owner && block.IsReachedFrom(device); });
  MakeCurrent(owner);  // PyTorch frees the block here
  return peers;
} catch (const std::exception&) {
  return devices;  // the device is full: a grant that nobody uses costs time, but a missing one ends the process
}

// PyTorch's fraction of a device, as we last applied it to our pools.
struct Fraction {
  std::atomic<double> of_memory{1.0};
};
constinit Forever<std::array<Fraction, KnownPools::kDevices>> fractions;

std::atomic<double>& FractionOf(int device) { return fractions.object[static_cast<size_t>(device)].of_memory; }

}  // namespace

void LimitPools(int device, double fraction) {
  const auto total = static_cast<double>(MemoryOf(device).total);
  const uint64_t limit = fraction >= 1.0 || total == 0 ? UINT64_MAX : static_cast<uint64_t>(fraction * total);
  TORCH_CHECK(Commpool().set_device_limit(device, limit) == COMMPOOL_OK, "commpool: ", Commpool().last_error());
  FractionOf(device).store(fraction, std::memory_order_relaxed);
}

void TakeOverFraction(int device) try {
  if (device < 0 || device >= KnownPools::kDevices || !Native()->initialized()) return;
  const OnDevice on_device(static_cast<c10::DeviceIndex>(device));
  const double fraction = Native()->getMemoryFraction(static_cast<c10::DeviceIndex>(device));
  // The program may have set a limit for our pools itself, in bytes. It stays as long as PyTorch's fraction is the
  // same.
  const double known = FractionOf(device).load(std::memory_order_relaxed);
  if (std::abs(fraction - known) > 1e-6) LimitPools(device, fraction);
} catch (const std::exception&) {
  // PyTorch has not used this device, so it has no fraction.
}

void TakeOver() {
  // the program has set nothing, and PyTorch answers nothing about devices that it does not know
  if (!Native()->initialized()) return;
  if (!Native()->isHistoryEnabled()) TorchHistory().Record({}, true);  // it ended before the router came back
  const std::vector<int> devices = DevicesInUse();
  for (const int device : devices) TakeOverFraction(device);
  if (devices.size() < 2) return;
  for (const int owner : devices)
    for (const int peer : ReachedFrom(owner, devices)) Pools().AllowPeer(peer, owner);
}

}  // namespace commpool::torch_adapter
