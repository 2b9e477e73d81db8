// Settings: COMMPOOL_CONF, parsed, for pools to be made. It never changes after Parse: any thread.
//
// A setting is for one pool ("gradients.limit:2GiB") or for all. The first of these wins: the program's code, the
// pool's own setting, the pool's own strategy, the general setting, the general strategy, the default. A general
// setting skips pools that cannot have it; a setting for that one pool is an error there.
//
// Before it: the words of the text (PyTorch's grammar, key:value,key:value), the strategies, and the table of settings,
// which knows how to read and show each. Pure functions: any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "commpool/status.h"
#include "src/library/pool/options.h"

namespace commpool::internal {

// Such as "gradients.limit:2GiB". A word without a colon is a key without a value.
struct SettingEntry {
  std::string pool;  // "gradients"; empty: every pool
  std::string key;   // "limit"
  // Empty for a word alone; the rows check the rest.
  std::string value;
  std::string text;  // the text as the user wrote it
};

// In PyTorch's grammar (key:value,key:value). Ignores spaces around a part, does not split at commas inside brackets,
// and allows a comma at the end. Reports no error: a word that means nothing is refused by InOwnWords.
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

// One line of the configuration in force: commpool_setting. `source`: "default", "code", or the entry of COMMPOOL_CONF.
struct SettingLine {
  std::string pool;
  std::string key;
  std::string value;
  std::string source;
};

// Runtime owns one and applies it to each pool that it makes. The C ABI parses it once, from the environment as it was
// at the first use (base/environment.h).
class Settings {
 public:
  Settings() = default;
  // kInvalidArgument names the setting and its allowed values.
  static Result<Settings> Parse(const std::string& text);
  // For a wrong COMMPOOL_CONF: no pool can be made, and `why` says so.
  static Settings Refusing(const Status& why);

  // Sets what `configuration.given` leaves open, records where each value came from, and checks that all values fit.
  // The C ABI calls it before the runtime makes a pool, and Runtime for default pools.
  Status ApplyTo(PoolConfiguration& configuration) const;

  // What device_limit and per_process_memory_fraction say together. Runtime reads it once, for the table of devices.
  const DeviceLimit& device_limit() const { return device_limit_; }

  // First the settings for all pools, then those for single pools.
  std::vector<SettingLine> Describe() const;

 private:
  // Refuses an unknown word, a second entry for one key and pool, and a value that is wrong by itself.
  Status Add(const SettingEntry& written);
  // The entry that gives a key its value for one pool, with that value, also where the entry names a strategy. An empty
  // value: COMMPOOL_CONF has none. By the order at the top of this file. Walks over all entries: there are few, and
  // only a new pool asks.
  SettingEntry Find(const char* key, const std::string& pool) const;

  // OK, unless COMMPOOL_CONF is wrong: then each pool fails with it.
  Status refusal_;
  // In our own words (InOwnWords), in the order of COMMPOOL_CONF.
  // Never two with the same key and pool (Add).
  std::vector<SettingEntry> entries_;
  DeviceLimit device_limit_;
};

// The configuration of an existing pool.
std::vector<SettingLine> DescribePool(const PoolConfiguration& configuration);

// Adds to a pool's failure which settings of COMMPOOL_CONF took part in it.
Status WithSources(const Status& status, const std::vector<SettingSource>& sources);

}  // namespace commpool::internal
