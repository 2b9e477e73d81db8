#include "tools/stress/order/pools.h"

#include <chrono>
#include <numeric>
#include <thread>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/c_api/boundary.h"
#include "tools/common/pool_invariants.h"

namespace commpool::cli::stress_order {

const std::map<std::string, PoolKind> kPoolKinds = {{"fixed", PoolKind::kFixed},
                                                    {"expandable", PoolKind::kExpandable},
                                                    {"symmetric", PoolKind::kSymmetric},
                                                    {"pinned", PoolKind::kHostPinned},
                                                    {"no-stream", PoolKind::kNoStream},
                                                    {"host", PoolKind::kHostNode},
                                                    {"peer-asked", PoolKind::kPeerAsked},
                                                    {"peer-recorded", PoolKind::kPeerRecorded},
                                                    {"peer", PoolKind::kPeer}};

namespace {

using internal::kMiB;

std::string NameOfKind(PoolKind kind) {
  for (const auto& [name, candidate] : kPoolKinds) {
    if (candidate == kind) return name;
  }
  return "";
}

bool IsPinned(PoolKind kind) { return kind == PoolKind::kHostPinned || kind == PoolKind::kNoStream; }

bool HasPeers(PoolKind kind) {
  return kind == PoolKind::kHostNode || kind == PoolKind::kPeerAsked || kind == PoolKind::kPeerRecorded ||
         kind == PoolKind::kPeer;
}

// What the kind says of streams and calls.
void SetUses(OrderPool& pool, const std::vector<int>& all) {
  const std::vector<int> own = {pool.device};
  const bool everywhere = HasPeers(pool.kind) || IsPinned(pool.kind);
  pool.asking = everywhere && pool.kind != PoolKind::kPeerRecorded ? all : own;
  pool.using_ = everywhere ? all : own;
  pool.own_device_alone = !everywhere;
  pool.sleeps = !IsPinned(pool.kind);
  pool.captures = !IsPinned(pool.kind) && pool.kind != PoolKind::kSymmetric;
  pool.shares = pool.kind == PoolKind::kFixed || pool.kind == PoolKind::kPeer;
}

}  // namespace

Result<std::unique_ptr<OrderPools>> OrderPools::Make(Machine& machine, std::mt19937_64& random, int devices,
                                                     const std::vector<PoolKind>& kinds) {
  std::unique_ptr<OrderPools> pools(new OrderPools(machine, devices));
  for (const PoolKind kind : kinds) {
    COMMPOOL_TRY(kind == PoolKind::kSymmetric ? pools->MakeSymmetric(random) : pools->Make(random, kind));
  }
  return pools;
}

Status OrderPools::Try(Machine& machine, PoolKind kind) {
  std::mt19937_64 random;
  const std::unique_ptr<OrderPools> pools = COMMPOOL_TRY(Make(machine, random, machine.MostDevices(), {kind}));
  for (const auto& pool : pools->pools_) {
    if (pool->group != SIZE_MAX) continue;  // has reserved
    machine.MakeCurrent(pool->device);
    void* block = nullptr;
    COMMPOOL_TRY(machine.Ask([&] { return commpool_pool_allocate(pool->handle, kMiB, nullptr, &block); }));
    COMMPOOL_TRY(machine.Ask([&] { return commpool_free(block); }));
  }
  return Status();
}

Status OrderPools::Make(std::mt19937_64& random, PoolKind kind) {
  auto pool = std::make_unique<OrderPool>();
  pool->kind = kind;
  pool->name = NameOfKind(kind) + std::to_string(pools_.size());
  pool->device = static_cast<int>(random() % static_cast<uint64_t>(devices_));
  pool->outlive = random() % 2 == 0;
  std::vector<int> all(static_cast<size_t>(devices_));
  std::iota(all.begin(), all.end(), 0);
  SetUses(*pool, all);

  commpool_pool_options options;
  commpool_pool_options_init(&options);
  options.name = pool->name.c_str();
  options.device = pool->device;
  options.streams = pool->outlive ? COMMPOOL_STREAMS_OUTLIVE : COMMPOOL_STREAMS_MAY_DIE;
  // A full pool has to reuse what it has; one with room may grow.
  options.limit_bytes = random() % 4 == 0 ? 256 * kMiB : (4 + 2 * (random() % 4)) * kMiB;
  if (random() % 4 == 0) options.release_threshold_bytes = 4 * kMiB;
  std::vector<int> peers;
  for (const int device : all) {
    if (device != pool->device) peers.push_back(device);
  }
  if (HasPeers(kind)) {
    options.peers = peers.data();
    options.peer_count = peers.size();
  }
  const bool may_expand = kind == PoolKind::kPeer || kind == PoolKind::kPeerRecorded;
  if (kind == PoolKind::kExpandable || (may_expand && random() % 2 == 0)) {
    options.mode = COMMPOOL_MODE_EXPANDABLE;
    options.moves = random() % 2 == 0 ? COMMPOOL_MOVES_EAGER : COMMPOOL_MOVES_UNDER_PRESSURE;
    pool->shares = false;
  }
  if (kind == PoolKind::kHostNode) {
    options.location = COMMPOOL_LOCATION_HOST_NUMA;
  } else if (IsPinned(kind)) {
    options.backing = COMMPOOL_BACKING_PINNED;
    pool->without_stream = kind == PoolKind::kNoStream;
    const bool ordered = !pool->without_stream && random() % 3 == 0;
    options.frees = ordered ? COMMPOOL_FREES_ORDERED : COMMPOOL_FREES_DEFERRED;
  }
  COMMPOOL_TRY(machine_.Ask([&] { return commpool_pool_create(&options, &pool->handle); }));
  pools_.push_back(std::move(pool));
  return Status();
}

Status OrderPools::MakeSymmetric(std::mt19937_64& random) {
  if (devices_ < 2) return Make(random, PoolKind::kFixed);
  const internal::NcclLibrary& nccl = machine_.driver().nccl;
  if (!nccl.available()) return Status(StatusCode::kNotSupported, nccl.why_missing);
  if (communicators_.empty()) {
    communicators_.resize(static_cast<size_t>(devices_));
    std::vector<int> all(communicators_.size());
    std::iota(all.begin(), all.end(), 0);
    COMMPOOL_TRY(internal::CheckNccl(machine_.driver(),
                                     nccl.ncclCommInitAll(communicators_.data(), devices_, all.data()),
                                     {.call = "ncclCommInitAll"}));
  }
  auto group = std::make_unique<OrderGroup>();
  const bool ordered = random() % 2 == 0;
  const bool outlive = ordered || random() % 2 == 0;
  std::vector<commpool_pool_options> options;
  for (int device = 0; device < devices_; ++device) {
    auto pool = std::make_unique<OrderPool>();
    pool->kind = PoolKind::kSymmetric;
    pool->name = "symmetric" + std::to_string(pools_.size());
    pool->device = device;
    pool->ordered = ordered;
    pool->outlive = outlive;
    pool->group = groups_.size();
    SetUses(*pool, {});
    commpool_pool_options& own = options.emplace_back();
    commpool_pool_options_init(&own);
    own.name = "symmetric";
    own.device = device;
    own.symmetric_across = communicators_[static_cast<size_t>(device)];
    own.frees = ordered ? COMMPOOL_FREES_ORDERED : COMMPOOL_FREES_DEFERRED;
    own.streams = outlive ? COMMPOOL_STREAMS_OUTLIVE : COMMPOOL_STREAMS_MAY_DIE;
    own.deadline_ms = 20000;
    group->pools.push_back(pools_.size());
    pools_.push_back(std::move(pool));
  }
  group->handles.resize(options.size());
  COMMPOOL_TRY(
      machine_.Ask([&] { return commpool_pools_create(options.data(), options.size(), group->handles.data()); }));
  for (size_t rank = 0; rank < group->pools.size(); ++rank) pools_[group->pools[rank]]->handle = group->handles[rank];
  groups_.push_back(std::move(group));
  const std::vector<commpool_pool>& handles = groups_.back()->handles;
  return machine_.Ask([&] { return commpool_pools_reserve(handles.data(), handles.size(), 12 * kMiB); });
}

OrderPools::~OrderPools() {
  for (const auto& group : groups_) {
    const Status closed =
        machine_.Ask([&] { return commpool_pools_close(group->handles.data(), group->handles.size()); });
    if (!closed.ok()) machine_.Violate(0, "close: " + closed.message());
  }
  for (const auto& pool : pools_) {
    if (pool->handle == 0) continue;
    const Status destroyed = machine_.Ask([&] { return commpool_pool_destroy(pool->handle); });
    if (!destroyed.ok()) machine_.Violate(0, "destroy: " + destroyed.message());
  }
  for (const ncclComm_t communicator : communicators_) machine_.driver().nccl.ncclCommDestroy(communicator);
}

std::string OrderPools::Describe() const {
  std::string text = std::to_string(devices_) + " devices:";
  for (const auto& pool : pools_) text += " " + pool->name + " of device " + std::to_string(pool->device);
  return text;
}

void OrderPools::CheckInvariants() const {
  internal::Runtime& runtime = *internal::OpenedProcessRuntime();
  for (const auto& pool : pools_) internal::CheckInvariants(*runtime.pools().Find(pool->handle).value());
}

void OrderPools::Trim(const OrderPool& pool, uint64_t step) {
  commpool_statistics counters;
  commpool_statistics_init(&counters);
  // A thread of the driver reports the end of a graph some time later, and another process that it has let go.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  do {
    const Status trimmed = machine_.Ask([&] { return commpool_pool_trim(pool.handle, 0, nullptr); });
    if (!trimmed.ok()) return machine_.Violate(step, "trim of " + pool.name + ": " + trimmed.message());
    commpool_pool_statistics(pool.handle, COMMPOOL_PEAKS_STAY, &counters);
    if (counters.allocated_blocks.current != 0 || counters.reserved_bytes.current == 0) break;
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < deadline);
  if (counters.allocated_blocks.current != 0) {
    machine_.Violate(
        step, "leak: " + pool.name + " still holds " + std::to_string(counters.allocated_blocks.current) + " blocks");
  } else if (counters.reserved_bytes.current != 0) {
    machine_.Violate(step, "leak: " + pool.name + " keeps " + std::to_string(counters.reserved_bytes.current) +
                               " bytes of segments without a block");
  }
}

void OrderPools::Close(uint64_t step) {
  for (const auto& pool : pools_) {
    if (pool->group == SIZE_MAX) Trim(*pool, step);
  }
  CheckInvariants();
}

}  // namespace commpool::cli::stress_order
