// What COMMPOOL_CONF says, for pools to be made. Values, never changed after Parse: any thread.
//
// A setting is of one pool ("gradients.limit:2GiB") or of all. Of those for an option the first counts: the program's
// code, the pool's own setting, the pool's own strategy, the general setting, the general strategy, the default. A
// general one passes pools by that cannot have it; one that names the pool is an error there.
#ifndef COMMPOOL_SRC_POOL_SETTINGS_SETTINGS_H_
#define COMMPOOL_SRC_POOL_SETTINGS_SETTINGS_H_

#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/pool/device_limit.h"
#include "src/pool/options.h"
#include "src/pool/settings/setting_entries.h"

namespace commpool::internal {

// A line of what is in force: commpool_setting.
struct SettingLine {
  std::string pool;
  std::string key;
  std::string value;
  std::string source;
};

class Settings {
 public:
  Settings() = default;
  // kInvalidArgument names the setting, and what it may be.
  static Result<Settings> Parse(const std::string& text);
  // For where what is said is wrong: no pool can be made, and this is why.
  static Settings Refusing(const Status& why);

  // Sets what `configuration.given` leaves open, notes where it came from, and checks that all of it fits together.
  Status ApplyTo(PoolConfiguration& configuration) const;

  const DeviceLimit& device_limit() const { return device_limit_; }

  // What pools begin with, then what is said for single pools.
  std::vector<SettingLine> Describe() const;

 private:
  struct Found {
    std::string value;
    const SettingEntry* entry = nullptr;  // null: nothing is said
  };

  Status Add(const SettingEntry& entry);
  Found Find(const char* key, const std::string& pool) const;

  Status refusal_;
  std::vector<SettingEntry> entries_;
  DeviceLimit device_limit_;
};

// Of a pool that was made.
std::vector<SettingLine> DescribePool(const PoolConfiguration& configuration);

// The failure of a pool to be made, with what COMMPOOL_CONF had to do with it.
Status WithSources(const Status& status, const std::vector<SettingSource>& sources);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SETTINGS_SETTINGS_H_
