// One row for each setting of a pool: how its value is read, how it is shown, and which pools may have it.
#include <algorithm>
#include <array>
#include <cstdio>
#include <locale>
#include <sstream>

#include "src/library/backing/backing_table.h"
#include "src/library/backing/node_pages.h"
#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/pool/settings/settings.h"

namespace commpool::internal {

namespace {

// Each further attempt waits up to a second (Pool::Allocate): more of them would look like a program that hangs.
constexpr uint32_t kMostAttempts = 100;

// Exact, and readable by ReadBytes: such as "2GiB".
std::string ShowBytes(uint64_t bytes) {
  if (bytes == UINT64_MAX) return "none";
  for (const auto& [unit, name] : {std::pair(kGiB, "GiB"), std::pair(kMiB, "MiB"), std::pair(kKiB, "KiB")}) {
    if (bytes != 0 && bytes % unit == 0) return std::to_string(bytes / unit) + name;
  }
  return std::to_string(bytes);
}

// As the user would write it: "0.8", not "0.800000".
std::string ShowShare(double share) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%g", share);
  return text.data();
}

// The error for a wrong value. The caller puts the entry of COMMPOOL_CONF before it (WrongSetting).
Status May(const std::string& values) { return InvalidArgument("it may be ", values); }

// Some backings can be chosen in code only. COMMPOOL_CONF has no functions for a backing of the program's own. And a
// program that does not expect memory of the host would compute there.
bool IsBackingForSettings(const BackingRow& row) { return row.maker == Maker::kLibrary && row.places != Places::kHost; }

// `backing` alone: place and functions stay as the code has them.
Status SetBacking(const std::string& value, PoolConfiguration& pool) {
  const BackingRow* const row = FindBacking(value);
  if (row == nullptr || !IsBackingForSettings(*row)) return May(NamesOfBackings(IsBackingForSettings));
  pool.backing.kind = row->kind;
  return Status();
}

// Where others open the memory to every device it would be no promise.
Status GrantsFit(const PoolConfiguration& pool) {
  const char* const why = FindBacking(pool.backing.kind)->why_no_revoke;
  if (pool.backing.grants == Grants::kReadWrite || why == nullptr) return Status();
  return InvalidArgument(why);
}

// COMMPOOL_CONF may change a backing that the program did not name, but only where nothing depends on that backing.
Status BackingFits(const PoolConfiguration& pool) {
  const BackingRow& row = *FindBacking(pool.backing.kind);
  const auto no = [](const char* why) { return InvalidArgument(why); };
  if (pool.symmetric()) return no("the pool is symmetric, and the program has to choose the memory of windows itself");
  if (pool.backing.placement.kind != Placement::Kind::kDevice && row.places == Places::kDevice) {
    return no("the pool lies in host memory, and this backing makes none");
  }
  COMMPOOL_TRY(GrantsFit(pool));
  return CheckMode(pool);
}

// Whether the pool can be expandable is asked afterwards (CheckMode).
Status SetMode(const std::string& value, PoolConfiguration& pool) {
  if (value != "fixed" && value != "expandable") return May("fixed or expandable");
  pool.mode = value == "fixed" ? Mode::kFixed : Mode::kExpandable;
  return Status();
}

// What peers may do with the memory. GrantsFit asks afterwards whether the backing can hold them to it.
Status SetGrants(const std::string& value, PoolConfiguration& pool) {
  if (value != "read_write" && value != "read") return May("read_write or read");
  pool.backing.grants = value == "read" ? Grants::kRead : Grants::kReadWrite;
  return Status();
}

// Any pool may have it: only an expandable one looks at it.
Status SetMoves(const std::string& value, PoolConfiguration& pool) {
  if (value != "eager" && value != "under_pressure") return May("eager or under_pressure");
  pool.moves = value == "eager" ? Moves::kEager : Moves::kUnderPressure;
  return Status();
}

// For each option in bytes: the rows name the member that they set and show.
template <uint64_t PoolConfiguration::*option>
Status SetBytes(const std::string& value, PoolConfiguration& pool) {
  pool.*option = COMMPOOL_TRY(ReadBytes(value));
  return Status();
}

template <uint64_t PoolConfiguration::*option>
std::string ShowBytesOf(const PoolConfiguration& pool) {
  return ShowBytes(pool.*option);
}

// 0, the default, reads "auto".
template <uint64_t PoolConfiguration::*option>
Status SetBytesOrAuto(const std::string& value, PoolConfiguration& pool) {
  if (value != "auto") return SetBytes<option>(value, pool);
  pool.*option = 0;
  return Status();
}

template <uint64_t PoolConfiguration::*option>
std::string ShowBytesOrAuto(const PoolConfiguration& pool) {
  return pool.*option == 0 ? "auto" : ShowBytes(pool.*option);
}

// Both options may come from the environment. A general setting then skips pools with a small limit.
Status SegmentFits(const PoolConfiguration& pool) {
  if (pool.segment_bytes <= pool.limit_bytes) return Status();
  return InvalidArgument("the pool's limit is ", ShowBytes(pool.limit_bytes));
}

// Such as "60s" or "500ms"; a plain number means milliseconds.
Status SetDeadline(const std::string& value, PoolConfiguration& pool) {
  const size_t digits = value.find_first_not_of("0123456789");
  const std::string unit = digits == std::string::npos ? "ms" : value.substr(digits);
  // Where the unit is unknown the scale does not matter: the value is refused below.
  const uint64_t scale = unit == "s" ? 1000 : 1;
  // The largest number where the text has a larger one.
  const uint64_t number = std::strtoull(value.c_str(), nullptr, 10);
  if (digits == 0 || value.empty() || (unit != "s" && unit != "ms") || number > UINT64_MAX / scale) {
    return May("a time such as 60s or 500ms");
  }
  pool.deadline_ms = number * scale;
  return Status();
}

// In seconds where that is exact.
std::string ShowDeadline(const PoolConfiguration& pool) {
  const bool whole = pool.deadline_ms % 1000 == 0;
  return std::to_string(whole ? pool.deadline_ms / 1000 : pool.deadline_ms) + (whole ? "s" : "ms");
}

// From 1, because the first try counts.
Status SetAttempts(const std::string& value, PoolConfiguration& pool) {
  // Three digits at most, so that stoul cannot overflow.
  const bool digits = !value.empty() && value.size() <= 3 && value.find_first_not_of("0123456789") == std::string::npos;
  const uint32_t attempts = digits ? static_cast<uint32_t>(std::stoul(value)) : 0;
  if (attempts < 1 || attempts > kMostAttempts) return May("a number of attempts from 1 to 100");
  pool.attempts = attempts;
  return Status();
}

// From this share of the device's limit on, the pools release what they do not use before one of them grows.
Status SetCollection(const std::string& value, PoolConfiguration& pool) {
  pool.collection_share = COMMPOOL_TRY(ReadShare(value));
  return Status();
}

// Whether there is such a budget shows when the pool is made.
Status SetBudget(const std::string& value, PoolConfiguration& pool) {
  pool.budget = value == "none" ? "" : value;
  return Status();
}

Status BudgetFits(const PoolConfiguration& pool) {
  if (pool.budget.empty() || IsOfADevice(pool.backing)) return Status();
  return InvalidArgument("a budget is of a device's memory, and the pool has the host's");
}

// The least granularity that the backing has on any machine.
Status AlignmentFits(const PoolConfiguration& pool) {
  const bool on_host = FindBacking(pool.backing.kind)->places == Places::kHost;
  const uint64_t granularity = on_host ? NodePages::kPageBytes : kDevicePageBytes;
  if (pool.alignment_bytes <= granularity) return Status();
  return InvalidArgument("it is more than ", FormatBytes(granularity), ", a page of the backing ",
                         Name(pool.backing.kind));
}

// Short names, so that a row below is one line.
constexpr auto kAlignment = &PoolConfiguration::alignment_bytes;
constexpr auto kGranularity = &PoolConfiguration::granularity_bytes;
constexpr auto kThreshold = &PoolConfiguration::release_threshold_bytes;
constexpr auto kLimit = &PoolConfiguration::limit_bytes;
constexpr auto kSegment = &PoolConfiguration::segment_bytes;

using Pool = const PoolConfiguration&;
// Backing before mode and grants, and limit before segment: the later checks read what the earlier rows have set.
constexpr SettingRow kRows[] = {
    {"backing", COMMPOOL_OPTION_BACKING, SetBacking, [](Pool pool) { return std::string(Name(pool.backing.kind)); },
     BackingFits},
    {"mode", COMMPOOL_OPTION_MODE, SetMode,
     [](Pool pool) { return std::string(pool.mode == Mode::kFixed ? "fixed" : "expandable"); }, CheckMode},
    {"moves", COMMPOOL_OPTION_MOVES, SetMoves,
     [](Pool pool) { return std::string(pool.moves == Moves::kEager ? "eager" : "under_pressure"); }},
    {"grants", COMMPOOL_OPTION_GRANTS, SetGrants,
     [](Pool pool) { return std::string(pool.backing.grants == Grants::kRead ? "read" : "read_write"); }, GrantsFit},
    // A row without a check may still give a wrong pool: CheckConfiguration judges the whole at the end.
    {"limit", COMMPOOL_OPTION_LIMIT, SetBytes<kLimit>, ShowBytesOf<kLimit>},
    {"budget", COMMPOOL_OPTION_BUDGET, SetBudget,
     [](Pool pool) { return pool.budget.empty() ? std::string("none") : pool.budget; }, BudgetFits},
    {"segment", COMMPOOL_OPTION_SEGMENT, SetBytesOrAuto<kSegment>, ShowBytesOrAuto<kSegment>, SegmentFits},
    {"granularity", COMMPOOL_OPTION_GRANULARITY, SetBytesOrAuto<kGranularity>, ShowBytesOrAuto<kGranularity>},
    {"alignment", COMMPOOL_OPTION_ALIGNMENT, SetBytes<kAlignment>, ShowBytesOf<kAlignment>, AlignmentFits},
    {"release_threshold", COMMPOOL_OPTION_RELEASE_THRESHOLD, SetBytes<kThreshold>, ShowBytesOf<kThreshold>},
    {"deadline", COMMPOOL_OPTION_DEADLINE, SetDeadline, ShowDeadline},
    // The last two have no option in code: a program asks again by itself, and PyTorch's users know them by these
    // names.
    {"nmalloc", 0, SetAttempts, [](Pool pool) { return std::to_string(pool.attempts); }},
    {"garbage_collection_threshold", 0, SetCollection, [](Pool pool) { return ShowShare(pool.collection_share); }},
};

}  // namespace

std::span<const SettingRow> SettingRows() { return kRows; }

const SettingRow* FindSettingRow(std::string_view key) {
  const SettingRow* const found = std::ranges::find(kRows, key, &SettingRow::key);
  return found == std::end(kRows) ? nullptr : found;
}

// "none" is the largest number, so a limit needs no case of its own.
Result<uint64_t> ReadBytes(const std::string& text) {
  if (text == "none") return UINT64_MAX;
  return ParseBytes(text);
}

// With a point in every locale, whichever the program has set. The whole text must be the number.
Result<double> ReadShare(const std::string& text) {
  std::istringstream in(text);
  in.imbue(std::locale::classic());
  double share = 0;
  if (in >> share && in.peek() == std::istringstream::traits_type::eof() && share > 0 && share <= 1) return share;
  return InvalidArgument("it may be a share such as 0.8, above 0 and at most 1");
}

}  // namespace commpool::internal
