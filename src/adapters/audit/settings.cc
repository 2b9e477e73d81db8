#include "src/adapters/audit/settings.h"

#include <cstdlib>
#include <string_view>

namespace commpool::audit {

Settings Settings::FromText(const char* text) {
  Settings settings;
  settings.asked = text != nullptr;
  std::string_view rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    const std::string key(one.substr(0, one.find('=')));
    const std::string value(one.substr(std::min(one.size(), key.size() + 1)));
    if (key == "by") settings.by_cupti = value != "preload";
    if (key == "cupti") settings.cupti = value;
    if (key == "record") settings.record = value;
    if (key == "signal") settings.signal = std::atoi(value.c_str());
    if (key == "limit") settings.limit_bytes = std::strtoull(value.c_str(), nullptr, 10);
    if (key == "python-stacks") settings.python_stacks = value == "yes";
    if (key == "process") settings.started_by = std::atoi(value.c_str());
  }
  return settings;
}

}  // namespace commpool::audit
