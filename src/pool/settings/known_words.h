// What COMMPOOL_CONF accepts beside the settings of pools: strategies, and PyTorch's keys. Pure functions: any thread.
#ifndef COMMPOOL_SRC_POOL_SETTINGS_KNOWN_WORDS_H_
#define COMMPOOL_SRC_POOL_SETTINGS_KNOWN_WORDS_H_

#include <string_view>
#include <vector>

#include "commpool/status.h"
#include "src/pool/settings/setting_entries.h"

namespace commpool::internal {

inline constexpr const char* kDeviceLimitKey = "device_limit";
inline constexpr const char* kFractionKey = "per_process_memory_fraction";
inline constexpr const char* kStrategyKey = "strategy";

// A word that stands for several settings, written as in COMMPOOL_CONF.
struct Strategy {
  const char* name;
  const char* settings;
};

// Null where there is none.
const Strategy* FindStrategy(std::string_view name);

// Translates an entry into our own words: the name of a strategy becomes strategy:NAME, and a key of PyTorch becomes
// our key of the same meaning. Returns no entry for a setting that commpool has in any case. kInvalidArgument for an
// unknown word; also for a setting that only PyTorch has, with advice what to write instead.
Result<std::vector<SettingEntry>> InOwnWords(const SettingEntry& entry);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SETTINGS_KNOWN_WORDS_H_
