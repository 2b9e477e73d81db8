// Settings: reads COMMPOOL_CONF once and checks each entry by itself. Then it fills in what the program's code has left
// open, for each pool that is made.
#include "src/library/pool/settings/settings.h"

#include "src/library/base/printable.h"
#include "src/library/base/try.h"

namespace commpool::internal {

namespace {

// The words by which programs and reports tell a setting from the environment.
std::string SourceOf(const std::string& text) { return "COMMPOOL_CONF " + text; }

// With the setting as the user wrote it.
Status WrongSetting(const SettingEntry& entry, const Status& why) {
  return InvalidArgument("COMMPOOL_CONF says ", Printable(entry.text), ": ", why.message());
}

// The keys of devices: the limit as bytes, or as a share of the memory; what is left to others.
Status ReadDeviceLimit(const SettingEntry& entry, DeviceLimit& limit) {
  const bool budget = entry.key == kBudgetKey;
  if (!budget && !entry.pool.empty()) return InvalidArgument("it is for devices, and names no pool");
  if (budget && entry.pool.empty()) return InvalidArgument("write NAME.", entry.text, ", with the budget's name");
  if (entry.key == kFractionKey) {
    limit.fraction = COMMPOOL_TRY(ReadShare(entry.value));
    return Status();
  }
  const uint64_t bytes = COMMPOOL_TRY(ReadBytes(entry.value));
  if (budget) {
    limit.budgets[entry.pool] = bytes;
  } else if (entry.key == kHeadroomKey) {
    limit.headroom = entry.value == "none" ? 0 : bytes;
  } else {
    limit.bytes = bytes;
  }
  return Status();
}

// The value that a strategy gives a key; empty where it gives none.
std::string ValueIn(const Strategy& strategy, const std::string& key) {
  // Our own text, so InOwnWords has nothing to translate.
  for (const SettingEntry& entry : SplitSettings(strategy.settings)) {
    if (entry.key == key) return entry.value;
  }
  return "";
}

}  // namespace

// Stops at the first wrong entry, and names it.
Result<Settings> Settings::Parse(const std::string& text) {
  Settings settings;
  for (const SettingEntry& written : SplitSettings(text)) {
    const Status added = settings.Add(written);
    if (!added.ok()) return WrongSetting(written, added);
  }
  return settings;
}

// A runtime opens all the same, so that a rank can tell the others why it makes no pool.
Settings Settings::Refusing(const Status& why) {
  Settings settings;
  settings.refusal_ = why;
  return settings;
}

// Two entries for one key are refused even if they agree.
Status Settings::Add(const SettingEntry& written) {
  const std::optional<SettingEntry> entry = COMMPOOL_TRY(InOwnWords(written));
  if (!entry) return Status();
  for (const SettingEntry& other : entries_) {
    if (other.key != entry->key || other.pool != entry->pool) continue;
    return InvalidArgument("so does ", other.text, " before it: which one counts?");
  }
  // Before the checks: a wrong entry ends Parse, and the list goes with it.
  entries_.push_back(*entry);
  // Whether a pool with only this setting would be valid: a value that does not fit it fits none. A mistake shows at
  // the program's first call, and not when the first pool that it concerns is made, which asks the row's `fits` again.
  if (const SettingRow* const row = FindSettingRow(entry->key)) {
    PoolConfiguration of_defaults;
    COMMPOOL_TRY(row->set(entry->value, of_defaults));
    COMMPOOL_TRY(row->fits(of_defaults));
    return CheckConfiguration(of_defaults);
  }
  if (entry->key != kStrategyKey) return ReadDeviceLimit(*entry, device_limit_);
  if (FindStrategy(entry->value) != nullptr) return Status();
  return InvalidArgument("it may be heuristic, nmalloc, caching_allocator or pooled");
}

// Entries for this pool come before those for all pools. Among each, the key itself comes before a strategy that sets
// it.
SettingEntry Settings::Find(const char* key, const std::string& pool) const {
  // An entry for all pools has the empty name.
  for (const std::string& name : {pool, std::string()}) {
    SettingEntry by_strategy;
    for (const SettingEntry& entry : entries_) {
      if (entry.pool != name) continue;
      if (entry.key == key) return entry;
      if (entry.key != kStrategyKey) continue;
      by_strategy = entry;
      by_strategy.value = ValueIn(*FindStrategy(entry.value), key);
    }
    if (!by_strategy.value.empty()) return by_strategy;
  }
  return {};
}

// Row by row: whether a value fits depends on what the rows before it have set.
Status Settings::ApplyTo(PoolConfiguration& configuration) const {
  COMMPOOL_TRY(refusal_);
  for (const SettingRow& row : SettingRows()) {
    // The program's code wins.
    // A row without an option has no bit, so no code can have set it.
    if ((configuration.given & row.option) != 0) continue;
    const SettingEntry found = Find(row.key, configuration.name);
    if (found.value.empty()) continue;
    // Tried on a copy: a value that does not fit must leave nothing behind.
    PoolConfiguration changed = configuration;
    Status status = row.set(found.value, changed);
    if (status.ok()) status = row.fits(changed);
    if (status.ok()) {
      // For messages: a pool that fails later says which settings it got from COMMPOOL_CONF.
      changed.sources.push_back({row.key, found.text});
      configuration = std::move(changed);
    } else if (!found.pool.empty() && found.key == row.key) {
      // An entry of its own names the pool and so must fit; a general one, and a strategy's, skips it.
      return WrongSetting(found, status);
    }
  }
  return WithSources(CheckConfiguration(configuration), configuration.sources);
}

// Shows what a pool without settings of its own gets, and then the entries for single pools as they were written.
std::vector<SettingLine> Settings::Describe() const {
  PoolConfiguration general;
  general.name = "";
  // Its failure, of a wrong COMMPOOL_CONF, is told where a pool is made: here the defaults show.
  static_cast<void>(ApplyTo(general));
  std::vector<SettingLine> lines = DescribePool(general);
  const auto add = [&](const char* key, const std::string& otherwise) {
    const SettingEntry entry = Find(key, "");
    const bool set = !entry.value.empty();
    lines.insert(lines.begin(), {"", key, set ? entry.value : otherwise, set ? SourceOf(entry.text) : "default"});
  };
  // Each goes to the front, so the strategy is the first line in the end.
  add(kHeadroomKey, "0");
  add(kFractionKey, "1");
  add(kDeviceLimitKey, "none");
  add(kStrategyKey, "caching_allocator");
  for (const SettingEntry& entry : entries_) {
    if (!entry.pool.empty()) lines.push_back({entry.pool, entry.key, entry.value, SourceOf(entry.text)});
  }
  return lines;
}

// One line for each row, with who set it: the code, an entry, or nobody.
std::vector<SettingLine> DescribePool(const PoolConfiguration& configuration) {
  std::vector<SettingLine> lines;
  for (const SettingRow& row : SettingRows()) {
    std::string source = (configuration.given & row.option) != 0 ? "code" : "default";
    // ApplyTo leaves out what the code has set, so a key has one source at most.
    for (const SettingSource& from : configuration.sources) {
      if (std::string_view(row.key) == from.key) source = SourceOf(from.text);
    }
    lines.push_back({configuration.name, row.key, row.show(configuration), std::move(source)});
  }
  return lines;
}

// A program's author may not know what the environment of a job sets. An entry that set several options is named once.
Status WithSources(const Status& status, const std::vector<SettingSource>& sources) {
  if (status.ok() || sources.empty()) return status;
  std::string texts;
  for (const SettingSource& from : sources) {
    if (texts.find(from.text) == std::string::npos) texts += (texts.empty() ? "" : ",") + from.text;
  }
  return Failure(status.code(), status.message(), "; of its options COMMPOOL_CONF set ", texts);
}

}  // namespace commpool::internal
