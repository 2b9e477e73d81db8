// A pool's options, checked and in our own types. Units, defaults and reasons: include/commpool/commpool.h.
#ifndef COMMPOOL_SRC_POOL_OPTIONS_H_
#define COMMPOOL_SRC_POOL_OPTIONS_H_

#include <nccl.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commpool/commpool.h"
#include "src/backing/backing_factory.h"
#include "src/engine/symmetric_engine.h"

namespace commpool::internal {

// Of a pool that is not symmetric.
enum class Mode { kFixed, kExpandable };
enum class Moves { kEager, kUnderPressure };

struct PoolConfiguration {
  std::string name = "pool";
  BackingRequest backing;
  ncclComm_t home = nullptr;  // not null: a symmetric pool
  engine::FreeOrder frees = engine::FreeOrder::kDeferred;
  commpool_all_gather all_gather = nullptr;
  void* all_gather_context = nullptr;
  Mode mode = Mode::kFixed;
  Moves moves = Moves::kEager;
  uint64_t deadline_ms = 60000;
  std::vector<int> peers;
  uint64_t alignment_bytes = 512;
  uint64_t segment_bytes = 0;
  uint64_t granularity_bytes = 0;  // 0: the backing's
  uint64_t release_threshold_bytes = UINT64_MAX;
  uint64_t limit_bytes = UINT64_MAX;

  bool symmetric() const { return home != nullptr; }
};

// Checks what can be told without a driver. kInvalidArgument names the option, its value and what it may be.
Result<PoolConfiguration> ParsePoolOptions(const commpool_pool_options& options);

// How a symmetric pool's other ranks are reached, whatever else is wrong with the options: nothing where they name no
// home, or are of another struct. The rest are defaults.
std::optional<PoolConfiguration> ParseHome(const commpool_pool_options& options);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_OPTIONS_H_
