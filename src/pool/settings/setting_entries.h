// Splits the text of COMMPOOL_CONF, in PyTorch's grammar: key:value,key:value. Pure functions: any thread.
#ifndef COMMPOOL_SRC_POOL_SETTINGS_SETTING_ENTRIES_H_
#define COMMPOOL_SRC_POOL_SETTINGS_SETTING_ENTRIES_H_

#include <string>
#include <string_view>
#include <vector>

#include "commpool/status.h"

namespace commpool::internal {

// Such as "gradients.limit:2GiB". A word without a colon is a key without a value.
struct SettingEntry {
  std::string pool;  // "gradients"; empty: every pool
  std::string key;   // "limit"
  std::string value;
  std::string text;  // the text as the user wrote it
};

// Ignores spaces around a part, does not split at commas inside brackets, and allows a comma at the end.
std::vector<SettingEntry> SplitSettings(std::string_view text);

// kInvalidArgument, with the setting as the user wrote it.
Status WrongSetting(const SettingEntry& entry, const std::string& why);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SETTINGS_SETTING_ENTRIES_H_
