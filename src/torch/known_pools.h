// The pools that may hold PyTorch's tensors. PyTorch's statistics, snapshots, limits and empty_cache cover them too.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "commpool/commpool.h"
#include "src/torch/native.h"
#include "src/torch/segments.h"

namespace commpool::torch_adapter {

using c10::cuda::MempoolId_t;

// All ranks trim a symmetric pool together, or nobody does. kUnknown is treated the same: a scope of the C ABI named
// the pool, and it may be symmetric.
enum class PoolKind { kOfOneRank, kSymmetric, kUnknown };

struct KnownPool {
  commpool_pool pool = 0;
  int device = 0;
  PoolKind kind = PoolKind::kUnknown;
  MempoolId_t id;           // the name in PyTorch's snapshots and statistics
  uint64_t kept_bytes = 0;  // the program reserved it; only the program gives it back
  // The totals at the last reset of accumulated statistics: of all blocks, and of large ones.
  commpool_statistics base_totals;
  commpool_statistics base_large;
  uint64_t handed_on = 0;  // since the reset: failures after which the next outer scope served the program
  // it is, or was, the whole allocator of its device; such an allocator tells small blocks from large ones
  bool whole = false;
  LargeBlocks large;  // those of more than kSmallRequest

  commpool_statistics LargeNow(const commpool_statistics& all) const { return whole ? LargeOf(pool, all, large) : all; }
};

// PyTorch's own name for all its memory.
inline constexpr MempoolId_t kEverything = {0, 0};

// Owns the list of those pools and of PyTorch's peers. The router and its C surface call it.
class KnownPools {
 public:
  static constexpr int kDevices = 64;

  // Adds the pool, or learns its kind. Grants it once to the devices that PyTorch has made peers.
  void Add(commpool_pool pool, int device, PoolKind kind);
  std::optional<KnownPool> Of(commpool_pool pool);
  // Calls `change` with the pool under the lock, if the pool is known.
  template <typename Function>
  void Change(commpool_pool pool, const Function& change) {
    const std::lock_guard lock(mutex_);
    if (KnownPool* const known = Find(pool)) change(*known);
  }

  // Returns the pools of one device, oldest first.
  std::vector<KnownPool> OfDevice(int device);
  // Returns the pool that PyTorch's snapshots call `id`, or all pools; nothing if the id is not ours.
  std::vector<KnownPool> Named(const MempoolId_t& id);

  // Starts the accumulated statistics of the device at zero, and its peaks at the current values.
  void ResetTotals(int device);
  void ResetPeaks(int device);

  // `device` may now read and write PyTorch's memory on `owner`. So it grants our pools there to it, and later ones
  // too.
  void AllowPeer(int device, int owner);
  // Grants all of them again: a pool that slept when a peer came has no grant.
  void GrantAgain();

  // Returns the pool that serves a device outside of all scopes; 0: PyTorch's own allocator does.
  commpool_pool Default(int device) const {
    return device >= 0 && device < kDevices ? defaults_[device].load(std::memory_order_relaxed) : 0;
  }
  void SetDefault(int device, commpool_pool pool);
  // Returns the name in snapshots and statistics. The whole allocator counts as PyTorch's default pool, not as a
  // private one.
  MempoolId_t ShownId(const KnownPool& known) const {
    return Default(known.device) == known.pool ? kEverything : known.id;
  }

  // Counts the live blocks of all pools, also those that another caller than the router got.
  uint64_t LiveBlocks();

 private:
  template <typename Predicate>
  std::vector<KnownPool> Select(const Predicate& wanted);
  KnownPool* Find(commpool_pool pool);  // the caller holds the mutex
  void ForgetGone();

  std::mutex mutex_;
  std::vector<KnownPool> pools_;            // sorted by handle
  std::vector<std::pair<int, int>> peers_;  // device, owner
  std::array<std::atomic<commpool_pool>, kDevices> defaults_ = {};
};

inline constinit Forever<KnownPools> known_pools;
inline KnownPools& Pools() { return known_pools.object; }

// Returns false if the pool is gone.
bool ReadStatistics(commpool_pool pool, commpool_statistics* statistics, commpool_peaks peaks = COMMPOOL_PEAKS_STAY);

// Gives a pool's free segments back to the driver, except what the program reserved; never those of a symmetric pool.
// Returns the bytes.
uint64_t TrimKnownPool(const KnownPool& known);
uint64_t TrimKnownPools(int device);

// Limits our pools on the device to the fraction of its memory. Throws if the library refuses.
void LimitPools(int device, double fraction);
// For a device whose first pool is now known: takes over PyTorch's fraction, which may come from its configuration.
void TakeOverFraction(int device);
// Takes over what the program told PyTorch's allocator before the router was there, which PyTorch reports only once:
// which devices reach each other's memory, what fraction of a device it may use, and that it records history. Call it
// when the router is in place: from then on the router hears of changes.
void TakeOver();

}  // namespace commpool::torch_adapter
