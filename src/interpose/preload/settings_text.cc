#include "src/interpose/preload/settings_text.h"

#include <algorithm>
#include <string_view>

namespace commpool::preload {

std::map<std::string, std::string> ReadSettings(const char* text) {
  std::map<std::string, std::string> settings;
  std::string_view rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    const std::string_view key = one.substr(0, one.find('='));
    settings[std::string(key)] = one.substr(std::min(one.size(), key.size() + 1));
  }
  return settings;
}

}  // namespace commpool::preload
