// The text of COMMPOOL_CONF in its parts, in PyTorch's grammar: key:value,key:value. Pure functions: any thread.
#ifndef COMMPOOL_SRC_POOL_SETTINGS_SETTING_ENTRIES_H_
#define COMMPOOL_SRC_POOL_SETTINGS_SETTING_ENTRIES_H_

#include <string>
#include <string_view>
#include <vector>

#include "commpool/status.h"

namespace commpool::internal {

// "gradients.limit:2GiB". A word without a colon has a key and no value.
struct SettingEntry {
  std::string pool;  // "gradients"; empty: every pool
  std::string key;   // "limit"
  std::string value;
  std::string text;  // as it is written
};

// Spaces around a part do not count, commas inside brackets do not separate, and a comma may end the text.
std::vector<SettingEntry> SplitSettings(std::string_view text);

// kInvalidArgument, with the setting as it is written.
Status WrongSetting(const SettingEntry& entry, const std::string& why);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SETTINGS_SETTING_ENTRIES_H_
