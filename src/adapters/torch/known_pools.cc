#include "src/adapters/torch/known_pools.h"

#include <algorithm>

#include "src/adapters/torch/commpool_calls.h"
#include "src/adapters/torch/earlier.h"
#include "src/adapters/torch/native.h"

namespace commpool::torch_adapter {
namespace {

// PyTorch numbers its pools from 1 on. Ours begin where PyTorch does not get to.
constexpr uint64_t kFirstId = uint64_t{1} << 62;

// Grants each pool on its own, so that a failure of one does not stop the others. A repeated grant calls no driver.
void Grant(const std::vector<KnownPool>& pools, int peer) {
  for (const KnownPool& known : pools) Commpool().pool_grant(known.pool, &peer, 1);
}

}  // namespace

bool ReadStatistics(commpool_pool pool, commpool_statistics* statistics) {
  *statistics = {};
  statistics->struct_bytes = sizeof(*statistics);
  return Commpool().pool_statistics(pool, statistics) == COMMPOOL_OK;
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
  TakeOverFraction(device);
  // Grants each peer on its own, so that a failure of one does not stop the others.
  for (const int peer : peers) Commpool().pool_grant(pool, &peer, 1);
}

std::optional<KnownPool> KnownPools::Of(commpool_pool pool) {
  const std::lock_guard lock(mutex_);
  const KnownPool* const known = Find(pool);
  return known == nullptr ? std::nullopt : std::optional(*known);
}

template <typename Predicate>
std::vector<KnownPool> KnownPools::Those(const Predicate& wanted) {
  std::vector<KnownPool> found;
  const std::lock_guard lock(mutex_);
  std::copy_if(pools_.begin(), pools_.end(), std::back_inserter(found), wanted);
  return found;
}

std::vector<KnownPool> KnownPools::OfDevice(int device) {
  return Those([device](const KnownPool& known) { return known.device == device; });
}

std::vector<KnownPool> KnownPools::Named(const MempoolId_t& id) {
  return Those([&id](const KnownPool& known) { return id == kEverything || known.id == id; });
}

void KnownPools::ResetTotals(int device) {
  for (const KnownPool& known : OfDevice(device)) {
    commpool_statistics now;
    if (!ReadStatistics(known.pool, &now)) continue;
    const commpool_statistics large = known.LargeNow(now);
    Change(known.pool, [&](KnownPool& kept) {
      kept.base_totals = now;
      kept.base_large = large;
      kept.handed_on = 0;
    });
  }
}

void KnownPools::ResetPeaks(int device) {
  for (const KnownPool& known : OfDevice(device)) {
    Commpool().pool_reset_peaks(known.pool);
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

}  // namespace commpool::torch_adapter
