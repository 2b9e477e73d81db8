// Settings: COMMPOOL_CONF, parsed, for pools to be made. It never changes after Parse: any thread.
//
// A setting is for one pool ("gradients.limit:2GiB") or for all. The first of these wins: the program's code, the
// pool's own setting, the pool's own strategy, the general setting, the general strategy, the default. A general
// setting skips pools that cannot have it; a setting for that one pool is an error there.
#pragma once

#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/library/pool/options.h"
#include "src/library/pool/settings/known_words.h"

namespace commpool::internal {

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
