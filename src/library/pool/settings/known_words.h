// The words of COMMPOOL_CONF: splits its text, in PyTorch's grammar (key:value,key:value), and knows what it accepts
// beside the settings of pools: strategies, and PyTorch's keys. Pure functions: any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "commpool/status.h"

namespace commpool::internal {

// Such as "gradients.limit:2GiB". A word without a colon is a key without a value.
struct SettingEntry {
  std::string pool;  // "gradients"; empty: every pool
  std::string key;   // "limit"
  // Empty for a word alone; the rows check the rest.
  std::string value;
  std::string text;  // the text as the user wrote it
};

// Ignores spaces around a part, does not split at commas inside brackets, and allows a comma at the end.
// Settings::Parse splits the user's text with it, and settings.cc the text of a strategy. Reports no error: a word that
// means nothing is refused by InOwnWords.
std::vector<SettingEntry> SplitSettings(std::string_view text);

// Keys that are no rows of the table: the first four are for devices, the last one for several settings at once.
// Settings reads them itself, so FindSettingRow finds none of them.
inline constexpr const char* kDeviceLimitKey = "device_limit";
inline constexpr const char* kFractionKey = "per_process_memory_fraction";
inline constexpr const char* kHeadroomKey = "headroom";
inline constexpr const char* kBudgetKey = "budget_limit";  // where a pool's name would be it has the budget's
inline constexpr const char* kStrategyKey = "strategy";

// A word that stands for several settings, written as in COMMPOOL_CONF.
struct Strategy {
  // The value of the key strategy, or a word alone in COMMPOOL_CONF.
  const char* name;
  const char* settings;
};

// Null where there is none. The result lives as long as the process.
const Strategy* FindStrategy(std::string_view name);

// Translates an entry into our own words: the name of a strategy becomes strategy:NAME, and a key of PyTorch becomes
// our key of the same meaning. Returns no entry for a setting that commpool has in any case. kInvalidArgument for an
// unknown word; also for a setting that only PyTorch has, with advice what to write instead.
Result<std::optional<SettingEntry>> InOwnWords(const SettingEntry& entry);

}  // namespace commpool::internal
