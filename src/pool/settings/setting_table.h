// The settings that a pool can have: how each is read, shown, and which pools it is for. Pure functions: any thread.
#ifndef COMMPOOL_SRC_POOL_SETTINGS_SETTING_TABLE_H_
#define COMMPOOL_SRC_POOL_SETTINGS_SETTING_TABLE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "commpool/status.h"
#include "src/pool/options.h"

namespace commpool::internal {

struct SettingRow {
  const char* key;
  uint64_t option;  // commpool_option; 0 where only COMMPOOL_CONF can say it
  // The message of a value that is wrong says what it may be.
  Status (*set)(const std::string& value, PoolConfiguration& configuration);
  // As COMMPOOL_CONF would say it.
  std::string (*show)(const PoolConfiguration& configuration);
  // Checks a pool with the value set: OK, or why such a pool cannot have it.
  Status (*fits)(const PoolConfiguration& configuration);
};

// In the order in which they are set: a row may look at what those before it have set.
std::span<const SettingRow> SettingRows();

// Null where there is none.
const SettingRow* FindSettingRow(std::string_view key);

// "none" for no limit.
Result<uint64_t> ReadBytes(const std::string& text);
// A share from 0, without it, to 1.
Result<double> ReadShare(const std::string& text);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SETTINGS_SETTING_TABLE_H_
