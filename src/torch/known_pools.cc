#include "src/torch/known_pools.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <iterator>
#include <memory>

#include "src/torch/commpool_calls.h"
#include "src/torch/history.h"

namespace commpool::torch_adapter {
namespace {

// PyTorch numbers its pools from 1 on. Ours begin where PyTorch does not get to.
constexpr uint64_t kFirstId = uint64_t{1} << 62;

// Grants each pool on its own, so that a failure of one does not stop the others. A repeated grant calls no driver.
void Grant(const std::vector<KnownPool>& pools, int peer) {
  for (const KnownPool& known : pools) Commpool().pool_set_access(known.pool, &peer, 1, COMMPOOL_ACCESS_GRANTED);
}

// Makes a device current, and later the previous one again, but creates no context for that.
using OnDevice = c10::cuda::CUDAGuard;

void MakeCurrent(int device) { c10::cuda::SetDevice(static_cast<c10::DeviceIndex>(device)); }

// For memory that the current device cannot reach, CUDA returns null instead of the address.
bool IsReachedFrom(int device, const void* pointer) {
  MakeCurrent(device);
  cudaPointerAttributes attributes = {};
  if (cudaPointerGetAttributes(&attributes, pointer) == cudaSuccess) return attributes.devicePointer != nullptr;
  static_cast<void>(cudaGetLastError());  // the answer is unknown: count it as reached
  return true;
}

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
  const std::unique_ptr<void, void (*)(void*)> block(Native()->raw_alloc_with_stream(1, nullptr),
                                                     [](void* pointer) { Native()->raw_delete(pointer); });
  std::vector<int> peers;
  std::copy_if(devices.begin(), devices.end(), std::back_inserter(peers),
               [&](int device) { return device != owner && IsReachedFrom(device, block.get()); });
  MakeCurrent(owner);  // PyTorch frees the block here
  return peers;
} catch (const std::exception&) {
  return devices;  // the device is full: a grant that nobody uses costs time, but a missing one ends the process
}

// How much PyTorch's fraction of a device leaves out, as we last applied it to our pools.
constinit std::array<std::atomic<double>, KnownPools::kDevices> left_out = {};

}  // namespace

bool ReadStatistics(commpool_pool pool, commpool_statistics* statistics, commpool_peaks peaks) {
  *statistics = {};
  statistics->struct_bytes = sizeof(*statistics);
  return Commpool().pool_statistics(pool, peaks, statistics) == COMMPOOL_OK;
}

uint64_t TrimKnownPool(const KnownPool& known) {
  uint64_t bytes = 0;
  if (known.kind != PoolKind::kOfOneRank) return 0;
  return Commpool().pools_trim(&known.pool, 1, known.kept_bytes, &bytes) == COMMPOOL_OK ? bytes : 0;
}

uint64_t TrimKnownPools(int device) {
  uint64_t released = 0;
  for (const KnownPool& known : Pools().OfDevice(device)) released += TrimKnownPool(known);
  return released;
}

KnownPool* KnownPools::Find(commpool_pool pool) {
  const auto found = std::lower_bound(pools_.begin(), pools_.end(), pool,
                                      [](const KnownPool& known, commpool_pool handle) { return known.pool < handle; });
  return found != pools_.end() && found->pool == pool ? &*found : nullptr;
}

void KnownPools::Add(commpool_pool pool, int device, PoolKind kind) {
  std::vector<int> peers;
  {
    const std::lock_guard lock(mutex_);
    if (KnownPool* const known = Find(pool)) {
      if (kind != PoolKind::kUnknown) known->kind = kind;
      return;
    }
    const auto place =
        std::find_if(pools_.begin(), pools_.end(), [&](const KnownPool& known) { return known.pool > pool; });
    pools_.insert(place, {pool, device, kind, MempoolId_t{0, kFirstId + pool}, 0, {}, {}});
    for (const auto& [peer, owner] : peers_)
      if (owner == device) peers.push_back(peer);
  }
  ForgetGone();
  TakeOverFraction(device);
  // Grants each peer on its own, so that a failure of one does not stop the others.
  for (const int peer : peers) Commpool().pool_set_access(pool, &peer, 1, COMMPOOL_ACCESS_GRANTED);
}

// The library is asked without the lock.
void KnownPools::ForgetGone() {
  commpool_statistics unused;
  for (const KnownPool& asked : Named(kEverything)) {
    if (ReadStatistics(asked.pool, &unused)) continue;
    const std::lock_guard lock(mutex_);
    std::erase_if(pools_, [&](const KnownPool& known) { return known.pool == asked.pool; });
  }
}

std::optional<KnownPool> KnownPools::Of(commpool_pool pool) {
  const std::lock_guard lock(mutex_);
  const KnownPool* const known = Find(pool);
  return known == nullptr ? std::nullopt : std::optional(*known);
}

template <typename Predicate>
std::vector<KnownPool> KnownPools::Select(const Predicate& wanted) {
  std::vector<KnownPool> found;
  const std::lock_guard lock(mutex_);
  std::copy_if(pools_.begin(), pools_.end(), std::back_inserter(found), wanted);
  return found;
}

std::vector<KnownPool> KnownPools::OfDevice(int device) {
  return Select([device](const KnownPool& known) { return known.device == device; });
}

std::vector<KnownPool> KnownPools::Named(const MempoolId_t& id) {
  return Select([&id](const KnownPool& known) { return id == kEverything || known.id == id; });
}

void KnownPools::ResetTotals(int device) {
  for (const KnownPool& known : OfDevice(device)) {
    commpool_statistics now;
    if (!ReadStatistics(known.pool, &now)) continue;
    const commpool_statistics large = LargeOf(known.pool, now, known.large);  // it may become the whole allocator later
    Change(known.pool, [&](KnownPool& kept) {
      kept.base_totals = now;
      kept.base_large = large;
      kept.handed_on = 0;
    });
  }
}

void KnownPools::ResetPeaks(int device) {
  for (const KnownPool& known : OfDevice(device)) {
    commpool_statistics before;
    ReadStatistics(known.pool, &before, COMMPOOL_PEAKS_RESET);
    Change(known.pool, [](KnownPool& kept) { kept.large.ResetPeaks(); });
  }
}

void KnownPools::AllowPeer(int device, int owner) {
  {
    const std::lock_guard lock(mutex_);
    if (std::find(peers_.begin(), peers_.end(), std::pair(device, owner)) != peers_.end()) return;
    peers_.emplace_back(device, owner);
  }
  Grant(OfDevice(owner), device);
}

void KnownPools::GrantAgain() {
  std::vector<std::pair<int, int>> peers;
  {
    const std::lock_guard lock(mutex_);
    peers = peers_;
  }
  for (const auto& [peer, owner] : peers) Grant(OfDevice(owner), peer);
}

void KnownPools::SetDefault(int device, commpool_pool pool) {
  Change(pool, [](KnownPool& known) { known.whole = true; });
  const commpool_pool before = defaults_[device].exchange(pool, std::memory_order_relaxed);
  Hot().catchers.fetch_add((pool != 0) - (before != 0), std::memory_order_relaxed);
}

uint64_t KnownPools::LiveBlocks() {
  uint64_t live = 0;
  commpool_statistics now;
  for (const KnownPool& known : Named(kEverything))
    if (ReadStatistics(known.pool, &now)) live += now.allocated_blocks.current;
  return live;
}

void LimitPools(int device, double fraction) {
  const auto total = static_cast<double>(MemoryOf(device).total);
  const uint64_t limit = fraction >= 1.0 || total == 0 ? UINT64_MAX : static_cast<uint64_t>(fraction * total);
  TORCH_CHECK(Commpool().set_device_bound(device, COMMPOOL_DEVICE_LIMIT, limit) == COMMPOOL_OK,
              "commpool: ", Commpool().last_error());
  left_out[device].store(1.0 - fraction, std::memory_order_relaxed);
}

void TakeOverFraction(int device) try {
  if (device < 0 || device >= KnownPools::kDevices || !Native()->initialized()) return;
  const OnDevice on_device(static_cast<c10::DeviceIndex>(device));
  const double fraction = Native()->getMemoryFraction(static_cast<c10::DeviceIndex>(device));
  // The program may have set a limit for our pools itself, in bytes. It stays as long as PyTorch's fraction is the
  // same.
  const double known = 1.0 - left_out[device].load(std::memory_order_relaxed);
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
