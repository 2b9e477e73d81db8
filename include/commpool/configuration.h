// What is in force and where it came from: defaults, COMMPOOL_CONF, code. Any thread.
//
//   for (const Setting& setting : configuration(pool).value()) print(setting.key, setting.value, setting.source);
//
// Header-only, over the C ABI; compiles as C++17. See commpool_configuration; reference.md has the keys.
#ifndef COMMPOOL_CONFIGURATION_H_
#define COMMPOOL_CONFIGURATION_H_

#include <cstddef>
#include <string>
#include <vector>

#include "commpool/commpool.h"
#include "commpool/pool.h"
#include "commpool/status.h"

namespace commpool {
inline namespace v1 {

// commpool_setting in commpool.h describes the fields.
struct Setting {
  std::string pool;
  std::string key;
  std::string value;
  std::string source;
};

namespace detail {

inline Result<std::vector<Setting>> ConfigurationOf(commpool_pool pool) {
  std::vector<commpool_setting> found;
  for (;;) {
    std::size_t count = 0;
    Status status = FromC(commpool_configuration(pool, found.data(), sizeof(commpool_setting), found.size(), &count));
    if (!status.ok()) return status;
    const bool whole = count <= found.size();
    found.resize(count);
    if (whole) break;
  }
  std::vector<Setting> settings;
  for (const commpool_setting& one : found) settings.push_back({one.pool, one.key, one.value, one.source});
  return settings;
}

}  // namespace detail

// Of pools to be made: what COMMPOOL_CONF says, and defaults. Opens no driver.
inline Result<std::vector<Setting>> configuration() { return detail::ConfigurationOf(0); }

// Of one pool.
inline Result<std::vector<Setting>> configuration(const Pool& pool) { return detail::ConfigurationOf(pool.handle()); }

}  // namespace v1
}  // namespace commpool

#endif  // COMMPOOL_CONFIGURATION_H_
