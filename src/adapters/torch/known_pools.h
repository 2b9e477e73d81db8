// The pools that PyTorch's tensors may lie in: what its statistics, snapshots, empty_cache and limits cover beside its
// own.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_KNOWN_POOLS_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_KNOWN_POOLS_H_

#include <c10/cuda/CUDACachingAllocator.h>

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "commpool/commpool.h"
#include "src/adapters/torch/forever.h"
#include "src/adapters/torch/segments.h"

namespace commpool::torch_adapter {

using c10::cuda::MempoolId_t;

// A symmetric pool is trimmed by all ranks together, or not at all; so is one that only a scope of the C ABI has shown,
// which may be symmetric.
enum class PoolKind { kOfOneRank, kSymmetric, kUnknown };

struct KnownPool {
  commpool_pool pool = 0;
  int device = 0;
  PoolKind kind = PoolKind::kUnknown;
  MempoolId_t id;           // under which PyTorch's snapshots and statistics name it
  uint64_t kept_bytes = 0;  // what the program reserved, and nobody else gives back
  // As of the last reset of accumulated statistics: of all blocks, and of large ones.
  commpool_statistics base_totals;
  commpool_statistics base_large;
  uint64_t handed_on = 0;  // since then: failures that are none to the program, for its next scope out served
  bool whole = false;      // it is, or was, the whole allocator of its device, which tells small from large
  LargeBlocks large;

  commpool_statistics LargeNow(const commpool_statistics& all) const { return whole ? LargeOf(pool, all, large) : all; }
};

// PyTorch's own name for all of its memory.
inline constexpr MempoolId_t kEverything = {0, 0};

class KnownPools {
 public:
  static constexpr int kDevices = 64;

  // Adds it, or learns what kind it is of; grants it, once, to the devices that PyTorch made peers of its own.
  void Add(commpool_pool pool, int device, PoolKind kind);
  std::optional<KnownPool> Of(commpool_pool pool);
  void Keep(commpool_pool pool, uint64_t bytes);
  void Rename(commpool_pool pool, const MempoolId_t& id);

  // Of one device, in the order in which they were made.
  std::vector<KnownPool> OfDevice(int device);
  // The pool of that name in PyTorch's snapshots, or all pools; nothing where the id is none of ours.
  std::vector<KnownPool> Named(const MempoolId_t& id);

  // From now on accumulated statistics of the device begin at zero, peaks at what is there.
  void ResetTotals(int device);
  void ResetPeaks(int device);

  // The pool failed, and a scope further out is asked.
  void HandedOn(commpool_pool pool);

  // The router handed out, or takes back, a block of more than kSmallRequest.
  void LargeMade(commpool_pool pool, uint64_t requested);
  void LargeFreed(const commpool_block& block);

  // `device` may read and write PyTorch's memory on `owner`, so our pools there are granted to it, later ones too.
  void AllowPeer(int device, int owner);
  // Grants all of them again: a pool that slept when a peer came was granted to nobody.
  void GrantAgain();

  // The pool that serves a device outside of all scopes; 0: PyTorch's own allocator does.
  commpool_pool Default(int device) const {
    return device >= 0 && device < kDevices ? defaults_[device].load(std::memory_order_relaxed) : 0;
  }
  void SetDefault(int device, commpool_pool pool);
  // As snapshots and statistics name it: the whole allocator is PyTorch's own pool, which is no private one.
  MempoolId_t ShownId(const KnownPool& known) const {
    return Default(known.device) == known.pool ? kEverything : known.id;
  }

  // Blocks that are alive in all of them.
  uint64_t LiveBlocks();

 private:
  template <typename Predicate>
  std::vector<KnownPool> Those(const Predicate& wanted);
  KnownPool* Find(commpool_pool pool);  // under the mutex

  std::mutex mutex_;
  std::vector<KnownPool> pools_;            // by their handles
  std::vector<std::pair<int, int>> peers_;  // device, owner
  std::array<std::atomic<commpool_pool>, kDevices> defaults_ = {};
};

inline constinit Forever<KnownPools> known_pools;
inline KnownPools& Pools() { return known_pools.object; }

// False where the pool is gone.
bool ReadStatistics(commpool_pool pool, commpool_statistics* statistics);

// Gives a pool's free segments back to the driver, but not what the program reserved, and never a symmetric pool's.
// Returns the bytes.
uint64_t TrimKnownPool(const KnownPool& known);
uint64_t TrimKnownPools(int device);

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_KNOWN_POOLS_H_
