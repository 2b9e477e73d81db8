#include "src/c_api/options.h"

#include <algorithm>
#include <string>
#include <utility>

#include "src/backing/backing_table.h"
#include "src/base/printable.h"
#include "src/c_api/structs.h"
#include "src/stream/stream_key.h"

namespace commpool::internal {

namespace {

// What the first version of each struct had: 0.1.
constexpr StructName kPoolOptions = {"pool options", "commpool_pool_options_init", 160};
constexpr StructName kScopeOptions = {"scope options", "commpool_scope_options_init", 40};
constexpr StructName kHolderOptions = {"holder options", "commpool_holder_options_init", 40};

constexpr size_t kMostPeers = 1024;  // of any machine: the factory knows how many this one has

Status Invalid(const std::string& what) { return Status(StatusCode::kInvalidArgument, "pool options: " + what); }

Status InvalidScope(const std::string& what) { return Status(StatusCode::kInvalidArgument, "scope options: " + what); }

Result<commpool_pool_options> ReadPoolOptions(const commpool_pool_options& given) {
  commpool_pool_options defaults;
  commpool_pool_options_init(&defaults);
  return ReadStruct(kPoolOptions, &given, defaults);
}

Result<BackingRequest> ParseBacking(const commpool_pool_options& options) {
  BackingRequest request;
  const BackingRow* const backing = FindBacking(static_cast<int>(options.backing));
  if (backing == nullptr) {
    return Invalid("backing " + std::to_string(options.backing) + " is none of " +
                   NamesOfBackings([](const BackingRow&) { return true; }));
  }
  request.kind = backing->kind;
  switch (options.location) {
    case COMMPOOL_LOCATION_DEVICE:
      request.placement.kind = Placement::Kind::kDevice;
      break;
    case COMMPOOL_LOCATION_HOST_NUMA:
      request.placement.kind = Placement::Kind::kHostNuma;
      break;
    default:
      return Invalid("location " + std::to_string(options.location) + " is neither DEVICE nor HOST_NUMA");
  }
  if (options.device < 0) return Invalid("device " + std::to_string(options.device) + " is negative");
  if (options.numa_node < -1) return Invalid("numa_node " + std::to_string(options.numa_node) + " is below -1");
  request.placement.device = options.device;
  request.placement.numa_node = options.numa_node;
  request.user = {options.user_allocate, options.user_free, options.user_context};
  return request;
}

Status CheckMode(const commpool_pool_options& options) {
  if (options.moves != COMMPOOL_MOVES_EAGER && options.moves != COMMPOOL_MOVES_UNDER_PRESSURE) {
    return Invalid("moves " + std::to_string(options.moves) + " is neither EAGER nor UNDER_PRESSURE");
  }
  if (options.mode == COMMPOOL_MODE_FIXED || options.mode == COMMPOOL_MODE_EXPANDABLE) return Status();
  return Invalid("mode " + std::to_string(options.mode) + " is neither FIXED nor EXPANDABLE");
}

constexpr uint64_t kKnownOptions = 2 * COMMPOOL_OPTION_LIMIT - 1;

// What the program's code says: what it names, and what is not as the init function sets it.
Result<uint64_t> GivenOptions(const commpool_pool_options& options) {
  if ((options.given & ~kKnownOptions) != 0) {
    return Invalid("given " + std::to_string(options.given) + " has bits that name no option");
  }
  commpool_pool_options defaults;
  commpool_pool_options_init(&defaults);
  const auto differs = [&](auto commpool_pool_options::*option, commpool_option bit) {
    return options.*option == defaults.*option ? uint64_t{0} : uint64_t{bit};
  };
  using Options = commpool_pool_options;
  return options.given | differs(&Options::backing, COMMPOOL_OPTION_BACKING) |
         differs(&Options::mode, COMMPOOL_OPTION_MODE) | differs(&Options::moves, COMMPOOL_OPTION_MOVES) |
         differs(&Options::deadline_ms, COMMPOOL_OPTION_DEADLINE) |
         differs(&Options::alignment_bytes, COMMPOOL_OPTION_ALIGNMENT) |
         differs(&Options::segment_bytes, COMMPOOL_OPTION_SEGMENT) |
         differs(&Options::granularity_bytes, COMMPOOL_OPTION_GRANULARITY) |
         differs(&Options::release_threshold_bytes, COMMPOOL_OPTION_RELEASE_THRESHOLD) |
         differs(&Options::limit_bytes, COMMPOOL_OPTION_LIMIT);
}

Result<ScopeFilter> ParseFilter(commpool_filter filter) {
  switch (filter) {
    case COMMPOOL_FILTER_THREAD:
      return ScopeFilter::kThread;
    case COMMPOOL_FILTER_STREAM:
      return ScopeFilter::kStream;
    case COMMPOOL_FILTER_PROCESS:
      return ScopeFilter::kProcess;
  }
  return InvalidScope("filter " + std::to_string(filter) + " is none of THREAD, STREAM and PROCESS");
}

Result<Exhaustion> ParseExhaustion(commpool_exhaustion exhaustion) {
  switch (exhaustion) {
    case COMMPOOL_EXHAUSTION_ERROR:
      return Exhaustion::kError;
    case COMMPOOL_EXHAUSTION_NEXT_SCOPE:
      return Exhaustion::kNextScope;
  }
  return InvalidScope("exhaustion " + std::to_string(exhaustion) + " is none of ERROR and NEXT_SCOPE");
}

}  // namespace

Result<PoolConfiguration> ParsePoolOptions(const commpool_pool_options& given, const Settings& settings) {
  const Result<commpool_pool_options> read = ReadPoolOptions(given);
  if (!read.ok()) return read.status();
  const commpool_pool_options& options = *read;
  Result<BackingRequest> backing = ParseBacking(options);
  if (!backing.ok()) return backing.status();
  if (options.frees != COMMPOOL_FREES_DEFERRED && options.frees != COMMPOOL_FREES_ORDERED) {
    return Invalid("frees " + std::to_string(options.frees) + " is neither DEFERRED nor ORDERED");
  }
  Status mode = CheckMode(options);
  if (!mode.ok()) return mode;
  Result<uint64_t> in_code = GivenOptions(options);
  if (!in_code.ok()) return in_code.status();
  if (options.peer_count != 0 && options.peers == nullptr) return Invalid("peers is null and peer_count is not 0");
  if (options.peer_count > kMostPeers) {
    return Invalid("peer_count " + std::to_string(options.peer_count) + " is more devices than any machine has");
  }
  if (options.symmetric_across == nullptr && options.all_gather != nullptr) {
    return Invalid("all_gather is for symmetric pools: set symmetric_across too");
  }

  PoolConfiguration configuration;
  if (options.name != nullptr) configuration.name = Printable(options.name);
  if (options.tag != nullptr) configuration.tag = options.tag;
  configuration.backing = *backing;
  configuration.home = options.symmetric_across;
  configuration.frees =
      options.frees == COMMPOOL_FREES_ORDERED ? engine::FreeOrder::kOrdered : engine::FreeOrder::kDeferred;
  configuration.all_gather = options.all_gather;
  configuration.all_gather_context = options.all_gather_context;
  configuration.deadline_ms = options.deadline_ms;
  if (options.peer_count != 0) configuration.peers.assign(options.peers, options.peers + options.peer_count);
  configuration.alignment_bytes = options.alignment_bytes;
  configuration.segment_bytes = options.segment_bytes;
  configuration.mode = options.mode == COMMPOOL_MODE_EXPANDABLE ? Mode::kExpandable : Mode::kFixed;
  configuration.moves = options.moves == COMMPOOL_MOVES_EAGER ? Moves::kEager : Moves::kUnderPressure;
  configuration.on_lost_rank = options.on_lost_rank;
  configuration.lost_rank_context = options.lost_rank_context;
  configuration.granularity_bytes = options.granularity_bytes;
  configuration.release_threshold_bytes = options.release_threshold_bytes;
  configuration.limit_bytes = options.limit_bytes;
  configuration.given = *in_code;
  Status fits = settings.ApplyTo(configuration);
  if (!fits.ok()) return fits;
  configuration.deadline_ms = std::min(configuration.deadline_ms, kLongestDeadlineMs);
  return configuration;
}

std::optional<PoolConfiguration> ParseHome(const commpool_pool_options& given) {
  if (!CheckStructBytes(kPoolOptions, given.struct_bytes).ok() || given.symmetric_across == nullptr) {
    return std::nullopt;
  }
  const commpool_pool_options& options = given;  // what is read below is in every version
  PoolConfiguration configuration;
  configuration.home = options.symmetric_across;
  configuration.all_gather = options.all_gather;
  configuration.all_gather_context = options.all_gather_context;
  if (options.deadline_ms != 0) configuration.deadline_ms = std::min(options.deadline_ms, kLongestDeadlineMs);
  return configuration;
}

Result<SleepRequest> ParseSleep(commpool_keep keep, commpool_graphs graphs) {
  if (keep != COMMPOOL_KEEP_DISCARD && keep != COMMPOOL_KEEP_HOST) {
    return Status(StatusCode::kInvalidArgument, "keep " + std::to_string(keep) + " is neither DISCARD nor HOST");
  }
  if (graphs != COMMPOOL_GRAPHS_REFUSED && graphs != COMMPOOL_GRAPHS_NO_COLLECTIVES) {
    return Status(StatusCode::kInvalidArgument,
                  "graphs " + std::to_string(graphs) + " is neither REFUSED nor NO_COLLECTIVES");
  }
  return SleepRequest{keep == COMMPOOL_KEEP_HOST ? Keep::kHost : Keep::kDiscard,
                      graphs == COMMPOOL_GRAPHS_REFUSED ? LiveGraphs::kRefused : LiveGraphs::kNoCollectives};
}

Result<ScopeRequest> ParseScopeOptions(const commpool_scope_options* given) {
  commpool_scope_options options;
  commpool_scope_options_init(&options);
  if (given != nullptr) {
    const Result<commpool_scope_options> read = ReadStruct(kScopeOptions, given, options);
    if (!read.ok()) return read.status();
    options = *read;
  }
  const Result<ScopeFilter> filter = ParseFilter(options.filter);
  if (!filter.ok()) return filter.status();
  const Result<Exhaustion> exhaustion = ParseExhaustion(options.exhaustion);
  if (!exhaustion.ok()) return exhaustion.status();
  ScopeRequest request;
  request.filter = *filter;
  if (*filter == ScopeFilter::kStream) request.stream = KeyOfStream(options.stream);
  request.sizes = {options.min_bytes, options.max_bytes};
  request.exhaustion = *exhaustion;
  return request;
}

Result<commpool_holder_options> ParseHolderOptions(const commpool_holder_options& given) {
  commpool_holder_options defaults;
  commpool_holder_options_init(&defaults);
  return ReadStruct(kHolderOptions, &given, defaults);
}

}  // namespace commpool::internal
