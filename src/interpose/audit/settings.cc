#include "src/interpose/audit/settings.h"

#include <cstdlib>

#include "src/interpose/preload/settings_text.h"

namespace commpool::audit {

Settings Settings::FromText(const char* text) {
  Settings settings;
  settings.asked = text != nullptr;
  for (const auto& [key, value] : preload::ReadSettings(text)) {
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
