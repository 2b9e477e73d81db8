// START HERE. Pool: private memory with its own backing, peers, registrations, limits and statistics.
//
//   Pool pool = Pool::create({.device = 0, .symmetric_across = communicator}).value();
//   pool.reserve(GiB(1)).or_throw();
//   { PoolScope scope(pool); model.step(); }   // allocations of this thread go to the pool
//   pool.close().or_throw();
//
// Header-only, over the C ABI; compiles as C++17. The conventions at the top of commpool.h hold: units, ownership,
// threads, collective calls. A method documents only what commpool.h does not say of its function.
//
// Names: types are CamelCase, enumerators kCamelCase. Functions that programs call are lower_case, named after the C
// function or the function of a standard container that they resemble. KiB, MiB and GiB are written as units.
#ifndef COMMPOOL_POOL_H_
#define COMMPOOL_POOL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "commpool/buffer.h"
#include "commpool/commpool.h"
#include "commpool/kept.h"
#include "commpool/option.h"
#include "commpool/registrar.h"
#include "commpool/share.h"
#include "commpool/status.h"

namespace commpool {
inline namespace v1 {

constexpr std::uint64_t KiB(std::uint64_t count) { return count << 10; }
constexpr std::uint64_t MiB(std::uint64_t count) { return count << 20; }
constexpr std::uint64_t GiB(std::uint64_t count) { return count << 30; }

enum class Backing {
  kVmm = COMMPOOL_BACKING_VMM,
  kCuda = COMMPOOL_BACKING_CUDA,
  kNccl = COMMPOOL_BACKING_NCCL,
  kUser = COMMPOOL_BACKING_USER,
  kPinned = COMMPOOL_BACKING_PINNED
};
enum class Location { kDevice = COMMPOOL_LOCATION_DEVICE, kHostNuma = COMMPOOL_LOCATION_HOST_NUMA };
enum class Frees { kDeferred = COMMPOOL_FREES_DEFERRED, kOrdered = COMMPOOL_FREES_ORDERED };

enum class Mode { kFixed = COMMPOOL_MODE_FIXED, kExpandable = COMMPOOL_MODE_EXPANDABLE };
enum class Moves { kEager = COMMPOOL_MOVES_EAGER, kUnderPressure = COMMPOOL_MOVES_UNDER_PRESSURE };

// Whether the streams that a program passes to the pool outlive their use: convention 5 of commpool.h.
enum class Streams { kMayDie = COMMPOOL_STREAMS_MAY_DIE, kOutlive = COMMPOOL_STREAMS_OUTLIVE };

// Whether graphs that captured with the pool may run at once (commpool.h).
enum class Replays { kConcurrent = COMMPOOL_REPLAYS_CONCURRENT, kOneAtATime = COMMPOOL_REPLAYS_ONE_AT_A_TIME };

// What peers may do with the pool's memory.
enum class Grants { kReadWrite = COMMPOOL_GRANTS_READ_WRITE, kRead = COMMPOOL_GRANTS_READ };

// For sleep(): what stays of the blocks' contents. For sleep() and wake(): what is said of live graphs (commpool.h).
enum class Keep { kDiscard = COMMPOOL_KEEP_DISCARD, kHost = COMMPOOL_KEEP_HOST };
enum class LiveGraphs {
  kRefused = COMMPOOL_GRAPHS_REFUSED,
  kNoCollectives = COMMPOOL_GRAPHS_NO_COLLECTIVES,
  kDiscarded = COMMPOOL_GRAPHS_DISCARDED
};

enum class KeptIn {
  kPinned = COMMPOOL_KEPT_IN_PINNED,
  kPageable = COMMPOOL_KEPT_IN_PAGEABLE,
  kFiles = COMMPOOL_KEPT_IN_FILES
};

// For share(): what a sleep does while other processes import the pool, and whether the owner writes to the block
// still.
enum class Imports { kRefuseSleep = COMMPOOL_IMPORTS_REFUSE_SLEEP, kSleepToo = COMMPOOL_IMPORTS_SLEEP_TOO };
enum class Writes { kGoOn = COMMPOOL_WRITES_GO_ON, kEnded = COMMPOOL_WRITES_ENDED };

// What is kept, and where: commpool_sleep_options in kept.h.
struct SleepOptions {
  Keep keep = Keep::kHost;
  LiveGraphs graphs = LiveGraphs::kRefused;
  KeptIn kept_in = KeptIn::kPinned;
  std::string directory = {};
  bool retain = false;
  std::optional<std::vector<const void*>> blocks = {};
  std::vector<const void*> constants = {};
};

// Whether copies stay once the pool is awake.
enum class Retain {
  kAsBefore = COMMPOOL_RETAIN_AS_BEFORE,
  kCopies = COMMPOOL_RETAIN_COPIES,
  kNothing = COMMPOOL_RETAIN_NOTHING
};

// Whether an abandoned communicator is still alive. The program must say it: NCCL cannot be asked about an ended one.
enum class CommunicatorLife { kAlive = COMMPOOL_LIFE_ALIVE, kEnded = COMMPOOL_LIFE_ENDED };

// A pool's memory by functions without a context: see commpool_pool_functions.
struct PlainFunctions {
  commpool_plain_allocate allocate = nullptr;
  commpool_plain_free free = nullptr;
};

// Functions that make the segments of a kUser pool: PyTorch's pluggable signature and a context.
struct UserFunctions {
  commpool_user_allocate allocate = nullptr;
  commpool_user_free free = nullptr;
  void* context = nullptr;
};

// How a symmetric pool's ranks agree, if not over TCP: see commpool_all_gather. mpi.h has one over MPI.
struct Agreement {
  commpool_all_gather all_gather = nullptr;
  void* context = nullptr;
};

// Units, defaults and reasons: commpool_pool_options in commpool.h. COMMPOOL_CONF may set each Option that the program
// does not give.
struct PoolOptions {
  std::string name = "pool";
  int device = 0;
  Communicator symmetric_across = nullptr;
  Option<Backing> backing = Option<Backing>::unset(Backing::kVmm);
  Location location = Location::kDevice;
  int numa_node = -1;
  Frees frees = Frees::kDeferred;
  Option<Mode> mode = Option<Mode>::unset(Mode::kFixed);
  Option<Moves> moves = Option<Moves>::unset(Moves::kEager);
  std::vector<int> peers = {};
  Option<Grants> grants = Option<Grants>::unset(Grants::kReadWrite);
  Option<std::uint64_t> alignment_bytes = Option<std::uint64_t>::unset(512);
  Option<std::uint64_t> segment_bytes = Option<std::uint64_t>::unset(0);
  Option<std::uint64_t> granularity_bytes = Option<std::uint64_t>::unset(0);
  Option<std::uint64_t> release_threshold_bytes = Option<std::uint64_t>::unset(UINT64_MAX);
  Option<std::uint64_t> limit_bytes = Option<std::uint64_t>::unset(UINT64_MAX);
  std::string budget = {};  // of set_budget; empty: none, or COMMPOOL_CONF's
  Option<std::uint64_t> deadline_ms = Option<std::uint64_t>::unset(60000);
  UserFunctions user = {};
  Agreement agreement = {};
  commpool_on_lost_rank on_lost_rank = nullptr;
  void* lost_rank_context = nullptr;
  Streams streams = Streams::kMayDie;
  Replays replays = Replays::kConcurrent;
};

// One quantity of a pool: its value now, its peak since the last reset, and its sum over all time.
using Counter = commpool_counter;

// commpool_statistics in commpool.h says what each field counts.
struct Statistics : commpool_statistics {
  Statistics() { commpool_statistics_init(this); }
};

struct WindowPlace {
  ncclWindow_vidmem* window = nullptr;
  std::uint64_t offset = 0;
};

namespace detail {

// Points into `options`.
inline commpool_sleep_options ToC(const SleepOptions& options) {
  commpool_sleep_options c_options;
  commpool_sleep_options_init(&c_options);
  c_options.keep = static_cast<commpool_keep>(options.keep);
  c_options.graphs = static_cast<commpool_graphs>(options.graphs);
  c_options.kept_in = static_cast<commpool_kept_in>(options.kept_in);
  c_options.directory = options.directory.c_str();
  c_options.retain = options.retain ? 1 : 0;
  static const void* const none = nullptr;  // an empty list is one, and its data() may be null
  if (options.blocks) {
    c_options.blocks = options.blocks->empty() ? &none : options.blocks->data();
    c_options.block_count = options.blocks->size();
  }
  c_options.constants = options.constants.data();
  c_options.constant_count = options.constants.size();
  return c_options;
}

}  // namespace detail

// Owns a pool and destroys it in the end (commpool_pool_destroy: never a collective call). A default pool belongs to
// the library, and stays.
class Pool {
 public:
  static Result<Pool> create(const PoolOptions& options) {
    const commpool_pool_options c_options = ToC(options);
    commpool_pool pool = 0;
    Status status = detail::FromC(commpool_pool_create(&c_options, &pool));
    if (!status.ok()) return status;
    return Pool(pool, Owner::kProgram);
  }
  // The pool that serves a device's allocations outside every scope: to trim it, or to read its statistics. See
  // commpool_default_pool.
  static Result<Pool> default_pool(int device) {
    commpool_pool pool = 0;
    Status status = detail::FromC(commpool_default_pool(device, &pool));
    if (!status.ok()) return status;
    return Pool(pool, Owner::kLibrary);
  }

  Pool(Pool&& other) noexcept : pool_(std::exchange(other.pool_, 0)), owner_(other.owner_) {}
  Pool& operator=(Pool&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(owner_, other.owner_);
    return *this;
  }
  ~Pool() {
    if (pool_ != 0 && owner_ == Owner::kProgram) commpool_pool_destroy(pool_);
  }

  commpool_pool handle() const { return pool_; }

  // Space.
  Status reserve(std::uint64_t bytes) { return detail::FromC(commpool_pool_reserve(pool_, bytes)); }
  Result<std::uint64_t> reclaim() { return Counted(commpool_pool_reclaim); }
  Result<std::uint64_t> trim(std::uint64_t keep_bytes = 0) {
    std::uint64_t released = 0;
    Status status = detail::FromC(commpool_pool_trim(pool_, keep_bytes, &released));
    if (!status.ok()) return status;
    return released;
  }
  Status verify() { return detail::FromC(commpool_pool_verify(pool_)); }
  Status close() { return detail::FromC(commpool_pool_close(pool_)); }
  // A template, so that sleep({}) is the one with options: it keeps.
  template <typename Word, typename = std::enable_if_t<std::is_same_v<Word, Keep>>>
  Status sleep(Word keep, LiveGraphs graphs = LiveGraphs::kRefused) {
    return detail::FromC(
        commpool_pool_sleep(pool_, static_cast<commpool_keep>(keep), static_cast<commpool_graphs>(graphs)));
  }
  Status sleep(const SleepOptions& options = {}) {
    const commpool_sleep_options c_options = detail::ToC(options);
    return detail::FromC(commpool_pools_sleep_keeping(&pool_, 1, &c_options));
  }
  Status wake(LiveGraphs graphs = LiveGraphs::kRefused, Retain retain = Retain::kAsBefore) {
    return detail::FromC(
        commpool_pools_wake(&pool_, 1, static_cast<commpool_graphs>(graphs), static_cast<commpool_retain>(retain)));
  }
  // For reading on the host.
  Result<const void*> kept(const void* pointer, std::uint64_t bytes) const {
    const void* kept = nullptr;
    Status status = detail::FromC(commpool_pool_kept(pool_, pointer, bytes, &kept));
    if (!status.ok()) return status;
    return kept;
  }

  // Blocks.
  Result<Buffer> allocate(std::uint64_t bytes, Stream stream, Alignment alignment = {}) {
    return detail::Allocate(bytes, alignment, [&](std::uint64_t padded, void** block) {
      return commpool_pool_allocate(pool_, padded, stream, block);
    });
  }
  Result<PlainFunctions> functions() {
    PlainFunctions functions;
    Status status = detail::FromC(commpool_pool_functions(pool_, &functions.allocate, &functions.free));
    if (!status.ok()) return status;
    return functions;
  }

  // Tickets, for Import::open in another process (import.h).
  Result<std::string> share(Imports imports = Imports::kRefuseSleep) {
    return Ticket([&](char* text, std::size_t capacity) {
      return commpool_pool_share(pool_, static_cast<commpool_imports>(imports), text, capacity);
    });
  }
  Result<std::string> share(const void* block, Writes writes = Writes::kGoOn) {
    return Ticket([&](char* text, std::size_t capacity) {
      return commpool_block_share(block, static_cast<commpool_writes>(writes), text, capacity);
    });
  }

  // Peers.
  Status grant(const std::vector<int>& devices) { return SetAccess(devices, COMMPOOL_ACCESS_GRANTED); }
  Status revoke(const std::vector<int>& devices) { return SetAccess(devices, COMMPOOL_ACCESS_REVOKED); }

  // Registration.
  Status register_with(Communicator communicator) {
    return detail::FromC(commpool_pool_register_with(pool_, communicator));
  }
  Result<std::uint64_t> register_pending() { return Counted(commpool_pool_register_pending); }
  Status deregister(Communicator communicator) { return detail::FromC(commpool_pool_deregister(pool_, communicator)); }
  // A library beside NCCL (registrar.h); null on a rank of a symmetric pool that has none.
  Status add_registrar(const commpool_registrar* registrar) {
    return detail::FromC(commpool_pools_add_registrar(&pool_, &registrar, 1));
  }
  Status remove_registrar(const std::string& name) {
    return detail::FromC(commpool_pools_remove_registrar(&pool_, 1, name.c_str()));
  }
  // For peers_of(): collective, and again after a reserve that grew the pool.
  Status map_peers() { return detail::FromC(commpool_pools_map_peers(&pool_, 1)); }
  // Comes before ncclCommAbort; kEnded is for a communicator that was aborted already.
  Status abandon(Communicator communicator, CommunicatorLife life = CommunicatorLife::kAlive) {
    return detail::FromC(commpool_pool_abandon(pool_, communicator, static_cast<commpool_life>(life)));
  }
  Status rehome(Communicator communicator) { return detail::FromC(commpool_pool_rehome(pool_, communicator)); }
  // -1 where no rank is lost, and for a pool that is not symmetric.
  int lost_rank() const {
    int rank = -1;
    commpool_pool_lost_rank(pool_, &rank);
    return rank;
  }

  // Statistics.
  Result<Statistics> stats() const { return Read(COMMPOOL_PEAKS_STAY); }
  Status reset_peaks() { return Read(COMMPOOL_PEAKS_RESET).status(); }

 private:
  friend class PoolGroup;
  enum class Owner { kProgram, kLibrary };

  Pool(commpool_pool pool, Owner owner) : pool_(pool), owner_(owner) {}

  Status SetAccess(const std::vector<int>& devices, commpool_access access) {
    return detail::FromC(commpool_pool_set_access(pool_, devices.data(), devices.size(), access));
  }

  Result<Statistics> Read(commpool_peaks peaks) const {
    Statistics statistics;
    Status status = detail::FromC(commpool_pool_statistics(pool_, peaks, &statistics));
    if (!status.ok()) return status;
    return statistics;
  }

  // `given` names each option that the program gave, even one that equals the default.
  template <typename Value, typename Field>
  static void Set(const Option<Value>& option, commpool_option bit, Field& field, std::uint64_t& given) {
    if (option.given()) given |= bit;
    field = static_cast<Field>(static_cast<Value>(option));
  }

  static commpool_pool_options ToC(const PoolOptions& options) {
    commpool_pool_options c_options;
    commpool_pool_options_init(&c_options);
    c_options.name = options.name.c_str();
    c_options.device = options.device;
    Set(options.backing, COMMPOOL_OPTION_BACKING, c_options.backing, c_options.given);
    c_options.location = static_cast<commpool_location>(options.location);
    c_options.numa_node = options.numa_node;
    c_options.symmetric_across = options.symmetric_across;
    c_options.frees = static_cast<commpool_frees>(options.frees);
    c_options.streams = static_cast<commpool_streams>(options.streams);
    c_options.replays = static_cast<commpool_replays>(options.replays);
    Set(options.mode, COMMPOOL_OPTION_MODE, c_options.mode, c_options.given);
    Set(options.moves, COMMPOOL_OPTION_MOVES, c_options.moves, c_options.given);
    Set(options.granularity_bytes, COMMPOOL_OPTION_GRANULARITY, c_options.granularity_bytes, c_options.given);
    Set(options.release_threshold_bytes, COMMPOOL_OPTION_RELEASE_THRESHOLD, c_options.release_threshold_bytes,
        c_options.given);
    c_options.all_gather = options.agreement.all_gather;
    c_options.all_gather_context = options.agreement.context;
    Set(options.deadline_ms, COMMPOOL_OPTION_DEADLINE, c_options.deadline_ms, c_options.given);
    c_options.peers = options.peers.data();
    c_options.peer_count = options.peers.size();
    Set(options.grants, COMMPOOL_OPTION_GRANTS, c_options.grants, c_options.given);
    if (!options.budget.empty()) c_options.budget = options.budget.c_str();
    Set(options.alignment_bytes, COMMPOOL_OPTION_ALIGNMENT, c_options.alignment_bytes, c_options.given);
    Set(options.segment_bytes, COMMPOOL_OPTION_SEGMENT, c_options.segment_bytes, c_options.given);
    Set(options.limit_bytes, COMMPOOL_OPTION_LIMIT, c_options.limit_bytes, c_options.given);
    c_options.user_allocate = options.user.allocate;
    c_options.user_free = options.user.free;
    c_options.user_context = options.user.context;
    c_options.on_lost_rank = options.on_lost_rank;
    c_options.lost_rank_context = options.lost_rank_context;
    return c_options;
  }

  Result<std::uint64_t> Counted(commpool_status (*call)(commpool_pool, std::uint64_t*)) {
    std::uint64_t count = 0;
    Status status = detail::FromC(call(pool_, &count));
    if (!status.ok()) return status;
    return count;
  }

  template <typename Call>
  static Result<std::string> Ticket(Call&& call) {
    char text[COMMPOOL_TICKET_BYTES];
    Status status = detail::FromC(call(text, sizeof(text)));
    if (!status.ok()) return status;
    return std::string(text);
  }

  commpool_pool pool_ = 0;
  Owner owner_ = Owner::kProgram;
};

// The window that holds a pointer, without a driver call.
inline Result<WindowPlace> window_of(const void* pointer, Communicator communicator) {
  WindowPlace place;
  Status status = detail::FromC(commpool_window_of(pointer, communicator, &place.window, &place.offset));
  if (!status.ok()) return status;
  return place;
}

// Where a pointer is on each rank of a symmetric pool, once all ranks called Pool::map_peers().
inline Result<commpool_peers> peers_of(const void* pointer) {
  commpool_peers peers;
  Status status = detail::FromC(commpool_peers_of(pointer, &peers));
  if (!status.ok()) return status;
  return peers;
}

struct NvlsEligibility {
  bool eligible = false;
  std::string reason;  // why not
};

// Whether NCCL can use NVLink multicast for `bytes` at a pointer.
inline Result<NvlsEligibility> nvls_eligible(const void* pointer, std::uint64_t bytes, Communicator communicator) {
  int eligible = 0;
  const char* reason = nullptr;
  Status status = detail::FromC(commpool_nvls_eligible(pointer, bytes, communicator, &eligible, &reason));
  if (!status.ok()) return status;
  return NvlsEligibility{eligible != 0, reason};
}

}  // namespace v1
}  // namespace commpool

#endif  // COMMPOOL_POOL_H_
