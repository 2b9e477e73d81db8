// What COMMPOOL_CONF knows beside the settings of pools: strategies, and PyTorch's keys. Pure functions: any thread.
#ifndef COMMPOOL_SRC_POOL_SETTINGS_KNOWN_WORDS_H_
#define COMMPOOL_SRC_POOL_SETTINGS_KNOWN_WORDS_H_

#include <string>
#include <string_view>
#include <vector>

#include "commpool/status.h"
#include "src/pool/settings/setting_entries.h"

namespace commpool::internal {

inline constexpr const char* kDeviceLimitKey = "device_limit";
inline constexpr const char* kFractionKey = "per_process_memory_fraction";
inline constexpr const char* kStrategyKey = "strategy";

// A word that stands for several settings, as COMMPOOL_CONF would say them.
struct Strategy {
  const char* name;
  const char* settings;
};

// Null where there is none.
const Strategy* FindStrategy(std::string_view name);

// The entry in our own words: a strategy's name alone becomes strategy:NAME, and PyTorch's keys become ours where they
// mean the same. Nothing for what is so in any case. kInvalidArgument, with what to write instead, for what PyTorch has
// and commpool has not, and for what nobody knows.
Result<std::vector<SettingEntry>> InOwnWords(const SettingEntry& entry);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SETTINGS_KNOWN_WORDS_H_
