// The options of a pool and of a device in our own types. src/library/c_api/options.h reads and checks a program's
// options. Units, defaults and reasons: include/commpool/commpool.h.
#pragma once

#include <nccl.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "commpool/commpool.h"
#include "commpool/kept.h"
#include "commpool/status.h"
#include "src/library/backing/backing_table.h"
#include "src/library/engine/symmetric_engine.h"

namespace commpool::internal {

// For a pool that is not symmetric. Fixed pools can register their segments. Expandable ones move their pages, so they
// cannot.
enum class Mode { kFixed = COMMPOOL_MODE_FIXED, kExpandable = COMMPOOL_MODE_EXPANDABLE };
// When an expandable pool moves pages: at each growth, or only where memory is short.
enum class Moves { kEager = COMMPOOL_MOVES_EAGER, kUnderPressure = COMMPOOL_MOVES_UNDER_PRESSURE };

// Longer deadlines count as this one, 24 days. So sums of clock readings and waits cannot overflow.
inline constexpr uint64_t kLongestDeadlineMs = INT32_MAX;

// Whether the program promises that streams outlive their use in the pool: then it calls release_stream before it
// destroys one.
enum class Streams { kMayDie = COMMPOOL_STREAMS_MAY_DIE, kOutlive = COMMPOOL_STREAMS_OUTLIVE };

// Whether graphs that captured with the pool may run at once. Those that may not share one part of its memory.
enum class Replays { kConcurrent = COMMPOOL_REPLAYS_CONCURRENT, kOneAtATime = COMMPOOL_REPLAYS_ONE_AT_A_TIME };

// Who may close and destroy the pool. kLibrary: a device's default pool. No option of a program: Runtime sets it.
enum class Keeper { kProgram, kLibrary };

// What to keep in sleep. kHost: copies of blocks, as KeptCopies says.
enum class Keep { kDiscard = COMMPOOL_KEEP_DISCARD, kHost = COMMPOOL_KEEP_HOST };
// What is said of graphs that captured with the pool.
enum class LiveGraphs {
  kRefused = COMMPOOL_GRAPHS_REFUSED,
  kNoCollectives = COMMPOOL_GRAPHS_NO_COLLECTIVES,
  kDiscarded = COMMPOOL_GRAPHS_DISCARDED
};
// Whether the graphs may hold collectives, so that windows have to come back to their places.
constexpr bool DependOnPlaces(LiveGraphs graphs) { return graphs == LiveGraphs::kRefused; }
// Where the copies of a pool that sleeps lie: only pinned memory copies at the full speed of the bus.
enum class KeptIn {
  kPinned = COMMPOOL_KEPT_IN_PINNED,
  kPageable = COMMPOOL_KEPT_IN_PAGEABLE,
  kFiles = COMMPOOL_KEPT_IN_FILES
};
// What Keep::kHost means: which blocks are kept, and where. The C ABI fills it in from a program's options, with the
// addresses sorted.
struct KeptCopies {
  KeptIn in = KeptIn::kPinned;
  std::string directory = {};            // of kFiles
  bool retain = false;                   // the copies stay once the pool is awake
  bool all = true;                       // keeps all live blocks; else only those that `blocks` names
  std::vector<uint64_t> blocks = {};     // addresses in them, sorted
  std::vector<uint64_t> constants = {};  // likewise: copied once, while their copies are retained
};
enum class Retain { kAsBefore, kCopies, kNothing };
// How to fall asleep, or to wake, as the program asked. Lives during the call.
struct SleepRequest {
  Keep keep = Keep::kDiscard;  // with `copies`: to fall asleep
  KeptCopies copies = {};
  LiveGraphs graphs = LiveGraphs::kRefused;
  Retain retain = Retain::kAsBefore;  // of a wake
  Status readiness = {};              // the error of the program's arguments, which the other ranks must hear
};

// The option that COMMPOOL_CONF has set, and the text that set it. For messages, and for the configuration in force
// that a program can ask for.
struct SettingSource {
  const char* key = nullptr;
  std::string text;
};

// The options of one pool, after the program and COMMPOOL_CONF. A pool keeps them unchanged (PoolBasis). In this order:
// the C ABI reads the program's options, Settings::ApplyTo fills in what they leave open, the factory checks them
// against the machine.
struct PoolConfiguration {
  std::string name = "pool";
  BackingRequest backing;
  ncclComm_t home = nullptr;  // not null: the pool is symmetric
  // For symmetric pools: when a freed block serves again, how ranks talk where they do not use TCP, and the program's
  // function that hears of a lost rank.
  engine::FreeOrder frees = engine::FreeOrder::kDeferred;
  commpool_all_gather all_gather = nullptr;
  void* all_gather_context = nullptr;
  commpool_on_lost_rank on_lost_rank = nullptr;
  void* lost_rank_context = nullptr;
  Mode mode = Mode::kFixed;
  Moves moves = Moves::kEager;
  Streams streams = Streams::kMayDie;
  Replays replays = Replays::kConcurrent;
  // Of each wait for other ranks, for the device, and inside of NCCL.
  uint64_t deadline_ms = 60000;
  // Devices of this process that get access to every segment. The pool's own device may be among them.
  std::vector<int> peers;
  // Every block begins at a multiple of it.
  uint64_t alignment_bytes = 512;
  // The least size of a segment; of an expandable pool, the largest size of a page. 0: the engine's own.
  uint64_t segment_bytes = 0;
  uint64_t granularity_bytes = 0;  // 0: the backing's
  // After a free, the pool gives free memory back until it reserves no more than this.
  uint64_t release_threshold_bytes = UINT64_MAX;
  // The pool never reserves more than this.
  uint64_t limit_bytes = UINT64_MAX;
  std::string budget;  // whose limit it shares with others; empty: none
  Keeper keeper = Keeper::kProgram;
  // How often an allocation is tried, with pauses, before it is out of memory.
  uint32_t attempts = 1;
  // Before all pools of the device together exceed this share of its limit, the pool releases unused memory. 1: only
  // when the device is full.
  double collection_share = 1.0;
  uint64_t given = 0;                  // commpool_option bits: what the program's code has set
  std::vector<SettingSource> sources;  // what COMMPOOL_CONF has set

  bool symmetric() const { return home != nullptr; }
};

// How much the pools of a device may reserve together, until the program sets another limit. Both apply where both are
// set: the lower one counts. Settings reads it from COMMPOOL_CONF. DeviceTable applies it to each device at the
// device's first use.
struct DeviceLimit {
  uint64_t bytes = UINT64_MAX;
  double fraction = 1.0;                         // of the device's memory
  uint64_t headroom = 0;                         // what pools leave to others
  std::map<std::string, uint64_t> budgets = {};  // by name: what pools of each may reserve

  // UINT64_MAX: no limit.
  uint64_t For(uint64_t device_bytes) const {
    if (fraction == 1.0) return bytes;
    return std::min(bytes, static_cast<uint64_t>(fraction * static_cast<double>(device_bytes)));
  }
};

// Whether the options fit each other, as far as one can tell without a driver. kInvalidArgument names the option.
Status CheckConfiguration(const PoolConfiguration& options);

// Whether the memory is a device's: a budget is of no other.
bool IsOfADevice(const BackingRequest& backing);

// Whether the pool can have its mode: OK for a fixed one.
Status CheckMode(const PoolConfiguration& options);

}  // namespace commpool::internal
