#include "src/pool/settings/setting_entries.h"

#include "src/base/printable.h"

namespace commpool::internal {

namespace {

std::string Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1));
}

SettingEntry EntryOf(std::string_view text) {
  SettingEntry entry;
  const size_t colon = text.find(':');
  std::string_view name = text.substr(0, colon);
  if (colon != std::string_view::npos) entry.value = Trimmed(text.substr(colon + 1));
  const size_t dot = name.rfind('.');  // a pool's name may have dots; a key has none
  if (dot != std::string_view::npos) {
    entry.pool = Trimmed(name.substr(0, dot));
    name.remove_prefix(dot + 1);
  }
  entry.key = Trimmed(name);
  entry.text = Trimmed(text);
  return entry;
}

}  // namespace

std::vector<SettingEntry> SplitSettings(std::string_view text) {
  std::vector<SettingEntry> entries;
  size_t begin = 0;
  int brackets = 0;
  for (size_t place = 0; place <= text.size(); ++place) {
    const char letter = place < text.size() ? text[place] : ',';
    brackets += letter == '[' ? 1 : letter == ']' ? -1 : 0;
    if (letter != ',' || (brackets > 0 && place < text.size())) continue;
    SettingEntry entry = EntryOf(text.substr(begin, place - begin));
    if (!entry.text.empty()) entries.push_back(std::move(entry));
    begin = place + 1;
  }
  return entries;
}

Status WrongSetting(const SettingEntry& entry, const std::string& why) {
  return Status(StatusCode::kInvalidArgument, "COMMPOOL_CONF says " + Printable(entry.text) + ": " + why);
}

}  // namespace commpool::internal
