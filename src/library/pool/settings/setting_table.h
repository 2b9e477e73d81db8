// The settings of a pool: how to read and show each, and which pools may have it. Pure functions: any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "commpool/status.h"
#include "src/library/pool/options.h"

namespace commpool::internal {

// One setting of a pool. Parsing, checks, the configuration that commpool shows and the message about unknown words all
// read the rows.
struct SettingRow {
  // The word in COMMPOOL_CONF, and the name in the configuration that programs read.
  const char* key;
  uint64_t option;  // commpool_option; 0 where only COMMPOOL_CONF has it
  // The message for a wrong value lists the allowed ones.
  // Leaves the configuration as it was where the value is wrong.
  Status (*set)(const std::string& value, PoolConfiguration& configuration);
  // Written as in COMMPOOL_CONF.
  // `set` can read it.
  std::string (*show)(const PoolConfiguration& configuration);
  // Checks a pool with the value set: OK, or why such a pool cannot have it. By default every pool may have it.
  Status (*fits)(const PoolConfiguration& configuration) = [](const PoolConfiguration&) { return Status(); };
};

// In the order of setting: a row may read what earlier rows have set. The rows live as long as the process.
std::span<const SettingRow> SettingRows();

// Null where there is none.
const SettingRow* FindSettingRow(std::string_view key);

// "none" for no limit. kInvalidArgument says what a value may look like, as for all of these.
Result<uint64_t> ReadBytes(const std::string& text);
// A share above 0 and at most 1.
Result<double> ReadShare(const std::string& text);

}  // namespace commpool::internal
