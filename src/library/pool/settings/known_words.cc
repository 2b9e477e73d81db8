// What COMMPOOL_CONF may say: splits it into entries, and translates strategies and PyTorch's keys into our settings.
#include <algorithm>
#include <iterator>

#include "src/library/base/failure.h"
#include "src/library/base/nearest.h"
#include "src/library/base/printable.h"
#include "src/library/pool/settings/settings.h"

namespace commpool::internal {

namespace {

// Spaces around a word mean nothing, as in PyTorch's variable.
std::string Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1));
}

// Reads POOL.KEY:VALUE, KEY:VALUE, or a word alone, which has an empty value; a dot without a pool stays in the key.
// Checks nothing: the message about a wrong entry shows the text as a whole.
SettingEntry EntryOf(std::string_view text) {
  SettingEntry entry;
  const size_t colon = text.find(':');
  std::string_view name = text.substr(0, colon);
  if (colon != std::string_view::npos) entry.value = Trimmed(text.substr(colon + 1));
  const size_t dot = name.rfind('.');  // a pool's name may have dots; a key has none
  if (dot != std::string_view::npos) entry.pool = Trimmed(name.substr(0, dot));
  if (!entry.pool.empty()) {
    name.remove_prefix(dot + 1);
  }
  entry.key = Trimmed(name);
  entry.text = Trimmed(text);
  return entry;
}

// Our keys that are no rows of the table.
constexpr const char* kOtherKeys[] = {kStrategyKey, kDeviceLimitKey, kFractionKey, kHeadroomKey, kBudgetKey};

// What each strategy sets, in the words of COMMPOOL_CONF: so it is read and checked like a setting of the user's.
constexpr Strategy kStrategies[] = {
    // Pages move only when memory runs short. Until then the pool is as fast as a fixed one.
    {"heuristic", "mode:expandable,moves:under_pressure"},
    // Asks again twice before it is out of memory: other processes may release some meanwhile.
    {"nmalloc", "nmalloc:3"},
    // Says the defaults, so that a pool's own entry can take it out of a general strategy.
    {"caching_allocator", "mode:fixed,release_threshold:none"},
    // Grows seldom, and in large pieces.
    {"pooled", "mode:fixed,segment:256MiB,release_threshold:none"},
};

// Keys of PyTorch's PYTORCH_CUDA_ALLOC_CONF that commpool has no key for. `why` goes on from "this is PyTorch's alone:
// ".
struct ForeignKey {
  // As PyTorch spells it.
  const char* key;
  const char* why;
};

// Texts that several of the keys share.
constexpr const char* kAlwaysSplits =
    "commpool cuts and merges every block; mode:expandable is what it has against fragmentation";
constexpr const char* kNoHostMemory = "this is about PyTorch's own pinned memory; backing PINNED is an option in code";

// A program that moves from PyTorch's allocator has such keys: silence would let it believe that they still do
// something.
constexpr ForeignKey kForeignKeys[] = {
    {"backend", "it chooses PyTorch's allocator; commpool's is backing: vmm, nccl or cuda"},
    {"max_split_size_mb", kAlwaysSplits},
    {"max_non_split_rounding_mb", kAlwaysSplits},
    {"roundup_power2_divisions",
     "commpool rounds to multiples of alignment, and small blocks to classes that waste at most 3.2 %: "
     "alignment:BYTES is the nearest"},
    {"large_segment_size_mb", "commpool's segment:BYTES is the least size of every segment"},
    {"expandable_segments_reserve", "commpool's expandable pools reserve addresses as they need them"},
    {"expandable_segments_reserve_by_class", "commpool's expandable pools reserve addresses as they need them"},
    {"throw_on_cudamalloc_oom", "commpool searches for memory before it says that there is none: nmalloc:N"},
    {"graph_capture_record_stream_reuse", "commpool reuses what a capture freed in the order of its streams, always"},
    {"pinned_use_cuda_host_register", kNoHostMemory},
    {"pinned_num_register_threads", kNoHostMemory},
    {"pinned_use_background_threads", kNoHostMemory},
    {"pinned_reserve_segment_size_mb", kNoHostMemory},
    {"pinned_max_round_threshold_mb", kNoHostMemory},
    {"pinned_max_cached_size_mb", kNoHostMemory},
    {"pinned_free_catch_all", kNoHostMemory},
};

// Lists all words, because the nearest one may be wrong. PyTorch's other keys are left out: they have answers of their
// own.
Status UnknownWord(const SettingEntry& entry) {
  if (const size_t sign = entry.text.find('='); sign != std::string::npos) {
    return InvalidArgument("write ", Printable(std::string(entry.text).replace(sign, 1, ":")), ", with a colon");
  }
  std::vector<std::string_view> words;
  for (const SettingRow& row : SettingRows()) words.push_back(row.key);
  words.insert(words.end(), std::begin(kOtherKeys), std::end(kOtherKeys));
  words.push_back("expandable_segments");
  for (const Strategy& strategy : kStrategies) {
    // nmalloc is a strategy and a setting.
    if (FindSettingRow(strategy.name) == nullptr) words.push_back(strategy.name);
  }
  std::string known;  // "backing, mode, moves"
  for (const std::string_view word : words) known += (known.empty() ? "" : ", ") + std::string(word);
  return InvalidArgument("there is no setting \"", Printable(entry.key), "\"; the nearest is ",
                         Nearest(entry.key, words), ", and the known ones are ", known);
}

// PyTorch's switches are True and False. One of them chooses a pool's mode. The other says what commpool always does,
// so True is no setting, and False cannot be had.
Result<std::optional<SettingEntry>> Switched(const SettingEntry& entry) {
  const bool on = entry.value == "True" || entry.value == "true";
  if (!on && entry.value != "False" && entry.value != "false") return InvalidArgument("it may be True or False");
  if (entry.key == "expandable_segments") {
    SettingEntry mode = entry;
    // Its `text` stays as the user wrote it. So a message about the mode shows PyTorch's words.
    mode.key = "mode";
    mode.value = on ? "expandable" : "fixed";
    return std::optional(mode);
  }
  if (on) return std::optional<SettingEntry>();  // release_lock_on_cudamalloc: our pools never hold a lock there
  return InvalidArgument("commpool holds no lock while the driver makes memory, always");
}

}  // namespace

// Commas separate entries, but not inside of brackets: values of PyTorch's keys may be lists.
std::vector<SettingEntry> SplitSettings(std::string_view text) {
  std::vector<SettingEntry> entries;
  size_t begin = 0;
  int brackets = 0;
  for (size_t place = 0; place <= text.size(); ++place) {
    // The end of the text counts as a comma, so the last entry needs no code of its own.
    const char letter = place < text.size() ? text[place] : ',';
    // More closing than opening brackets do no harm: only a positive count holds a comma back.
    brackets += letter == '[' ? 1 : letter == ']' ? -1 : 0;
    if (letter != ',' || (brackets > 0 && place < text.size())) continue;
    SettingEntry entry = EntryOf(text.substr(begin, place - begin));
    // So a comma at the end makes no entry.
    if (!entry.text.empty()) entries.push_back(std::move(entry));
    begin = place + 1;
  }
  return entries;
}

// A linear search, as everywhere in the settings: the lists are short, and read at a pool's creation only.
const Strategy* FindStrategy(std::string_view name) {
  const Strategy* const found = std::ranges::find(kStrategies, name, &Strategy::name);
  return found == std::end(kStrategies) ? nullptr : found;
}

// Every entry passes here, ours too. A key of PyTorch that we do not have gets an answer of its own, which says what to
// write instead, or why nothing is needed.
Result<std::optional<SettingEntry>> InOwnWords(const SettingEntry& entry) {
  // `text` stays as the user wrote it, for messages.
  SettingEntry own = entry;
  // A strategy's name alone. With a colon it may be the name of a setting: nmalloc:5.
  if (entry.text.find(':') == std::string::npos && FindStrategy(entry.key) != nullptr) {
    own.value = entry.key;
    own.key = kStrategyKey;
  }
  if (own.key == "expandable_segments" || own.key == "release_lock_on_cudamalloc") return Switched(own);
  // Values are checked later, with the row: here only whether there is one.
  const bool ours =
      FindSettingRow(own.key) != nullptr || std::ranges::find(kOtherKeys, own.key) != std::end(kOtherKeys);
  if (ours && !own.value.empty()) return std::optional(own);
  if (ours) return InvalidArgument("it has no value: write ", own.key, ":VALUE");
  for (const ForeignKey& foreign : kForeignKeys) {
    if (own.key == foreign.key) return InvalidArgument("this is PyTorch's alone: ", foreign.why);
  }
  return UnknownWord(entry);
}

}  // namespace commpool::internal
