// Which options fit each other, and the messages that say why others do not.
#include "src/library/pool/options.h"

#include <utility>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"

namespace commpool::internal {

namespace {

constexpr uint64_t kMostAddressableBytes = uint64_t{1} << 47;  // addresses of a process, shared with its devices

// One beginning for all messages, so that a program finds its call.
Status Invalid(const auto&... what) { return InvalidArgument("pool options: ", what...); }

// Checks sizes that can be judged without a driver. pool_factory.cc compares them with the backing's granularity.
Status CheckSizes(const PoolConfiguration& options) {
  if (!IsPowerOfTwo(options.alignment_bytes) || options.alignment_bytes < 512) {
    return Invalid("alignment_bytes ", options.alignment_bytes, " is not a power of two of at least 512");
  }
  if (options.granularity_bytes != 0 && !IsPowerOfTwo(options.granularity_bytes)) {
    return Invalid("granularity_bytes ", options.granularity_bytes, " is neither 0 nor a power of two");
  }
  if (options.limit_bytes == 0) return Invalid("limit_bytes is 0: the pool could hold nothing");
  if (options.segment_bytes > options.limit_bytes) {
    return Invalid("segment_bytes ", FormatBytes(options.segment_bytes), " is more than limit_bytes ",
                   FormatBytes(options.limit_bytes));
  }
  for (const auto& [name, bytes] :
       {std::pair("segment_bytes", options.segment_bytes), std::pair("granularity_bytes", options.granularity_bytes)}) {
    if (bytes <= kMostAddressableBytes) continue;
    return Invalid(name, " ", FormatBytes(bytes), " is more than a device can address, ",
                   FormatBytes(kMostAddressableBytes));
  }
  if (!options.budget.empty() && !IsOfADevice(options.backing)) {
    return Invalid("budget ", options.budget, " is of a device's memory, and the pool has the host's");
  }
  if (options.deadline_ms == 0) return Invalid("deadline_ms is 0: no rank could answer in time");
  return Status();
}

}  // namespace

bool IsOfADevice(const BackingRequest& backing) {
  return backing.placement.kind == Placement::Kind::kDevice && FindBacking(backing.kind)->places != Places::kHost;
}

// Asked for a program's mode, and for one that COMMPOOL_CONF would choose. A general setting of COMMPOOL_CONF then
// skips a pool that cannot be expandable.
Status CheckMode(const PoolConfiguration& options) {
  if (options.mode == Mode::kFixed) return Status();
  if (options.symmetric()) {
    return Invalid(
        "mode EXPANDABLE excludes symmetric_across: windows are registered, and what is registered may not "
        "move");
  }
  const auto moves = [](const BackingRow& row) { return row.movement == Movement::kInPages; };
  if (moves(*FindBacking(options.backing.kind))) return Status();
  return Invalid("mode EXPANDABLE needs the ", NamesOfBackings(moves),
                 " backing: no other memory can move among addresses");
}

// Before anything is made. The entries of COMMPOOL_CONF are checked with it too, one by one.
Status CheckConfiguration(const PoolConfiguration& options) {
  COMMPOOL_TRY(CheckSizes(options));
  if (options.backing.user.allocate != nullptr && FindBacking(options.backing.kind)->maker != Maker::kProgram) {
    return Invalid("user_allocate is for the USER backing");
  }
  if (options.on_lost_rank != nullptr && !options.symmetric()) {
    return Invalid("on_lost_rank is for pools with symmetric_across: others have no ranks");
  }
  if (options.symmetric() && options.replays == Replays::kOneAtATime) {
    return Invalid("replays ONE_AT_A_TIME excludes symmetric_across: a symmetric pool reuses nothing in a graph");
  }
  return CheckMode(options);
}

}  // namespace commpool::internal
