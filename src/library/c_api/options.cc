#include "src/library/c_api/options.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "src/library/backing/backing_table.h"
#include "src/library/base/printable.h"
#include "src/library/base/try.h"
#include "src/library/c_api/structs.h"

namespace commpool::internal {

namespace {

constexpr uint64_t kRefusedByTheProgram = UINT64_MAX;  // in `given`: a binding refused the options before the call
constexpr size_t kMostReasonBytes = 1000;

// The binding's reason as one line of text, because every rank gets it in its error.
Status RefusedByTheProgram(const char* why) {
  std::string sentence(why, strnlen(why, kMostReasonBytes));
  std::replace_if(
      sentence.begin(), sentence.end(), [](unsigned char letter) { return letter < ' '; }, ' ');
  return InvalidArgument(sentence);
}

// Reads an option whose value is one of several words.
Status ReadWords(const commpool_pool_options& given, PoolConfiguration* read) {
  const int32_t number = NumberOf(given.backing);
  const BackingRow* const backing = FindBacking(number);
  if (backing == nullptr) {
    return InvalidArgument("pool options: backing ", number, " is none of ",
                           NamesOfBackings([](const BackingRow&) { return true; }));
  }
  read->backing.kind = backing->kind;
  Placement& placement = read->backing.placement;
  COMMPOOL_TRY(ReadWord("pool options: location", given.location, {"DEVICE", "HOST_NUMA"}, &placement.kind));
  COMMPOOL_TRY(ReadWord("pool options: frees", given.frees, {"DEFERRED", "ORDERED"}, &read->frees));
  COMMPOOL_TRY(ReadWord("pool options: mode", given.mode, {"FIXED", "EXPANDABLE"}, &read->mode));
  COMMPOOL_TRY(ReadWord("pool options: moves", given.moves, {"EAGER", "UNDER_PRESSURE"}, &read->moves));
  COMMPOOL_TRY(ReadWord("pool options: streams", given.streams, {"MAY_DIE", "OUTLIVE"}, &read->streams));
  COMMPOOL_TRY(ReadWord("pool options: replays", given.replays, {"CONCURRENT", "ONE_AT_A_TIME"}, &read->replays));
  return ReadWord("pool options: grants", given.grants, {"READ_WRITE", "READ"}, &read->backing.grants);
}

// Checks that need no other option.
Status CheckValues(const commpool_pool_options& given) {
  uint64_t known = 0;
  for (const SettingRow& row : SettingRows()) known |= row.option;
  if (given.device < 0) return InvalidArgument("pool options: device ", given.device, " is negative");
  if (given.numa_node < -1) return InvalidArgument("pool options: numa_node ", given.numa_node, " is below -1");
  if ((given.given & ~known) != 0) {
    return InvalidArgument("pool options: given ", given.given, " has bits that name no option");
  }
  if (given.peer_count != 0 && given.peers == nullptr)
    return InvalidArgument("pool options: peers is null and peer_count is not 0");
  if (given.peer_count > kMostPeers) {
    return InvalidArgument("pool options: peer_count ", given.peer_count, " is more devices than any machine has");
  }
  if (given.symmetric_across != nullptr || given.all_gather == nullptr) return Status();
  return InvalidArgument("pool options: all_gather is for symmetric pools: set symmetric_across too");
}

// A configuration that only says how to reach the other ranks.
PoolConfiguration HomeOf(const commpool_pool_options& given) {
  PoolConfiguration configuration;
  configuration.home = given.symmetric_across;
  configuration.all_gather = given.all_gather;
  configuration.all_gather_context = given.all_gather_context;
  return configuration;
}

// The options that COMMPOOL_CONF may set, and that differ from their defaults: the program has set them.
uint64_t OptionsThatDiffer(const PoolConfiguration& configuration) {
  const PoolConfiguration defaults;
  uint64_t options = 0;
  for (const SettingRow& row : SettingRows()) {
    if (row.show(configuration) != row.show(defaults)) options |= row.option;
  }
  return options;
}

Status ReadGraphs(int32_t graphs, LiveGraphs* read) {
  return ReadWord("graphs", graphs, {"REFUSED", "NO_COLLECTIVES", "DISCARDED"}, read);
}

// Addresses in blocks, sorted.
Result<std::vector<uint64_t>> ReadBlocks(const char* what, const void* const* blocks, size_t count,
                                         FunctionRef<Status(const void*)> is_live) {
  std::vector<uint64_t> addresses;
  if (count != 0 && blocks == nullptr) {
    return InvalidArgument(what, " is null and its count is not 0");
  }
  for (size_t place = 0; place < count; ++place) {
    COMMPOOL_TRY(is_live(blocks[place]).under(std::string(what) + " " + std::to_string(place)));
    addresses.push_back(reinterpret_cast<uint64_t>(blocks[place]));
  }
  std::sort(addresses.begin(), addresses.end());
  return addresses;
}

// Options that say nothing beside others: the program means something else than it says.
Status CheckSayAnything(const commpool_sleep_options& given, Keep keep, KeptIn in) {
  const bool directory = given.directory != nullptr && *given.directory != 0;
  if (directory && in != KeptIn::kFiles) return InvalidArgument("directory is for kept_in FILES");
  const bool copies = given.blocks != nullptr || given.constant_count != 0 || given.retain != 0 || directory;
  if (keep == Keep::kHost || !copies) return Status();
  return InvalidArgument("keep DISCARD keeps nothing: blocks, constants, retain and directory are for keep HOST");
}

Status ReadCopies(const commpool_sleep_options& given, FunctionRef<Status(const void*)> is_live, KeptCopies& copies) {
  const bool files = copies.in == KeptIn::kFiles;
  if (files && (given.directory == nullptr || *given.directory == 0)) {
    return InvalidArgument("kept_in FILES needs a directory");
  }
  if (files && given.retain != 0) {
    return InvalidArgument("copies in files are not retained: those in the host's memory are");
  }
  if (given.constant_count != 0 && given.retain == 0) {
    return InvalidArgument("constants are copied once where copies are retained: set retain");
  }
  if (files) copies.directory = given.directory;
  copies.retain = given.retain != 0;
  copies.all = given.blocks == nullptr;
  copies.blocks = COMMPOOL_TRY(ReadBlocks("blocks", given.blocks, given.block_count, is_live));
  copies.constants = COMMPOOL_TRY(ReadBlocks("constants", given.constants, given.constant_count, is_live));
  return Status();
}

Status ReadSleepOptions(const commpool_sleep_options* given, FunctionRef<Status(const void*)> is_live,
                        SleepRequest& request) {
  if (given == nullptr) return InvalidArgument("the sleep options are null");
  COMMPOOL_TRY(CheckStructBytes("sleep_options", given->struct_bytes, sizeof(*given)));
  COMMPOOL_TRY(ReadWord("keep", given->keep, {"DISCARD", "HOST"}, &request.keep));
  COMMPOOL_TRY(ReadGraphs(NumberOf(given->graphs), &request.graphs));
  COMMPOOL_TRY(ReadWord("kept_in", given->kept_in, {"PINNED", "PAGEABLE", "FILES"}, &request.copies.in));
  COMMPOOL_TRY(CheckSayAnything(*given, request.keep, request.copies.in));
  return ReadCopies(*given, is_live, request.copies);
}

}  // namespace

Result<PoolConfiguration> ParsePoolOptions(const commpool_pool_options& given, const Settings& settings) {
  COMMPOOL_TRY(CheckStructBytes("pool_options", given.struct_bytes, sizeof(given)));
  if (given.given == kRefusedByTheProgram && given.name != nullptr) return RefusedByTheProgram(given.name);
  PoolConfiguration configuration = HomeOf(given);
  COMMPOOL_TRY(ReadWords(given, &configuration));
  COMMPOOL_TRY(CheckValues(given));
  if (given.name != nullptr) configuration.name = Printable(given.name);
  configuration.backing.placement.device = given.device;
  configuration.backing.placement.numa_node = given.numa_node;
  configuration.backing.user = {given.user_allocate, given.user_free, given.user_context};
  configuration.deadline_ms = given.deadline_ms;
  if (given.peer_count != 0) configuration.peers.assign(given.peers, given.peers + given.peer_count);
  configuration.alignment_bytes = given.alignment_bytes;
  configuration.segment_bytes = given.segment_bytes;
  configuration.on_lost_rank = given.on_lost_rank;
  configuration.lost_rank_context = given.lost_rank_context;
  configuration.granularity_bytes = given.granularity_bytes;
  configuration.release_threshold_bytes = given.release_threshold_bytes;
  configuration.limit_bytes = given.limit_bytes;
  if (given.budget != nullptr) configuration.budget = Printable(given.budget);
  configuration.given = given.given | OptionsThatDiffer(configuration);
  COMMPOOL_TRY(settings.ApplyTo(configuration));
  configuration.deadline_ms = std::min(configuration.deadline_ms, kLongestDeadlineMs);
  return configuration;
}

std::optional<PoolConfiguration> ParseHome(const commpool_pool_options& given) {
  if (given.struct_bytes != sizeof(given) || given.symmetric_across == nullptr) return std::nullopt;
  PoolConfiguration configuration = HomeOf(given);
  if (given.deadline_ms != 0) configuration.deadline_ms = std::min(given.deadline_ms, kLongestDeadlineMs);
  return configuration;
}

SleepRequest ParseWake(int32_t graphs, int32_t retain) {
  SleepRequest request;
  request.readiness = ReadGraphs(graphs, &request.graphs);
  if (request.readiness.ok()) {
    request.readiness = ReadWord("retain", retain, {"AS_BEFORE", "COPIES", "NOTHING"}, &request.retain);
  }
  return request;
}

SleepRequest ParseSleepOptions(const commpool_sleep_options* given, FunctionRef<Status(const void*)> is_live) {
  SleepRequest request;
  request.readiness = ReadSleepOptions(given, is_live, request);
  return request;
}

Result<ScopeRequest> ParseScopeOptions(const commpool_scope_options* given) {
  ScopeRequest request;
  if (given == nullptr) return request;
  COMMPOOL_TRY(CheckStructBytes("scope_options", given->struct_bytes, sizeof(*given)));
  COMMPOOL_TRY(ReadWord("scope options: filter", given->filter, {"THREAD", "STREAM", "PROCESS"}, &request.filter));
  COMMPOOL_TRY(ReadWord("scope options: exhaustion", given->exhaustion, {"ERROR", "NEXT_SCOPE"}, &request.exhaustion));
  request.sizes = {given->min_bytes, given->max_bytes};
  return request;
}

}  // namespace commpool::internal
