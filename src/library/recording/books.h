// What a recorder has in memory, under its lock: pages, texts, and what lives in the pools.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "src/library/base/fields.h"
#include "src/library/recording/entries.h"
#include "src/library/recording/recorder.h"
#include "src/library/recording/recording_file.h"

namespace commpool::internal::recording {

// A page of a recording in memory, from its first entry to the disk.
struct Page {
  // The most that wait for the disk.
  static constexpr size_t kMost = 64;

  PageHeader header;
  uint64_t entries = 0;
  size_t used = 0;
  size_t written = 0;  // of `used`, on the disk
  uint64_t last = 0;   // the time of the last entry
  std::unique_ptr<char[]> bytes = std::make_unique_for_overwrite<char[]>(kEntryRoom);
};

// The numbers that texts have in a recording, and which of them the current chapter has told.
class Texts {
 public:
  // Longer ones are cut: an entry and its texts fit into a page.
  static constexpr size_t kMostBytes = 4096;
  // A program with more stacks than that gets no numbers for further ones.
  static constexpr size_t kMost = 1 << 16;

  // 0 for an empty text, and where there are too many.
  uint64_t NumberOf(std::string_view text) {
    text = text.substr(0, kMostBytes);
    if (text.empty()) return 0;
    const auto known = numbers_.find(std::string(text));
    if (known != numbers_.end()) return known->second;
    if (all_.size() == kMost) return 0;
    all_.push_back({&numbers_.emplace(text, all_.size() + 1).first->first, 0});
    return all_.size();
  }
  // Whether this chapter has to tell the text before an entry with its number. Call Told once it has.
  bool MustTell(uint64_t number, uint64_t chapter) const { return number != 0 && all_[number - 1].told_in != chapter; }
  void Told(uint64_t number, uint64_t chapter) { all_[number - 1].told_in = chapter; }
  const std::string& TextOf(uint64_t number) const { return *all_[number - 1].text; }

 private:
  struct Known {
    const std::string* text;
    uint64_t told_in;  // the last chapter that told it; 0: none
  };

  std::unordered_map<std::string, uint64_t> numbers_;
  std::vector<Known> all_;
};

// What lives in the pools of the process, so that a chapter can begin with it.
class LiveState {
 public:
  // `time` is that of the entry. Entries of what does not live change nothing.
  void Apply(const auto&, uint64_t) {}
  void Apply(const PoolMade& made, uint64_t time) { pools_[made.pool] = {made, time}; }
  void Apply(const PoolGone& gone, uint64_t) { pools_.erase(gone.pool); }
  void Apply(const SegmentMade& made, uint64_t time) { segments_[made.address] = {made, time}; }
  // A range may be a part of a segment, or be made of several.
  void Apply(const SegmentGone& gone, uint64_t time);
  void Apply(const BlockServed& served, uint64_t time) { blocks_[served.address] = {served, time}; }
  void Apply(const BlockFreed& freed, uint64_t) { blocks_.erase(freed.address); }
  void Apply(const Registered& made, uint64_t time) { registrations_[KeyOf(made)] = {made, time}; }
  void Apply(const Deregistered& ended, uint64_t) { registrations_.erase(KeyOf(ended)); }
  void Apply(const SpanBegan& began, uint64_t time) { spans_[began.span] = {began, time}; }
  void Apply(const SpanEnded& ended, uint64_t) { spans_.erase(ended.span); }

  bool HasBlock(uint64_t address) const { return blocks_.contains(address); }

  // Calls `tell` for all that lives, each with its age at `now`, in an order in which a reader knows what it reads of.
  void Retell(uint64_t now, const auto& tell) const {
    const auto each = [&](const auto& all) {
      for (const auto& [key, one] : all) {
        auto entry = one.entry;
        entry.age = now - one.time;
        tell(entry);
      }
    };
    each(pools_);
    each(segments_);
    each(blocks_);
    each(registrations_);
    each(spans_);
  }

 private:
  template <typename Entry>
  struct Dated {
    Entry entry;
    uint64_t time = 0;
  };
  using RegistrationKey = std::tuple<uint64_t, uint64_t, uint64_t>;
  static RegistrationKey KeyOf(const auto& entry) { return {entry.pool, entry.communicator, entry.address}; }

  std::map<uint64_t, Dated<PoolMade>> pools_;
  std::map<uint64_t, Dated<SegmentMade>> segments_;  // by address
  std::unordered_map<uint64_t, Dated<BlockServed>> blocks_;
  std::map<RegistrationKey, Dated<Registered>> registrations_;
  std::map<uint64_t, Dated<SpanBegan>> spans_;
};

// No entry takes more together with its texts, of which it has three at most.
inline constexpr size_t kLargestEntry = 4 * Texts::kMostBytes;

// The numbers of the texts that an entry names.
std::array<uint64_t, 3> TextsOf(const auto& entry) {
  if constexpr (requires { entry.name; }) {
    return {entry.name, entry.kind, entry.budget};
  } else if constexpr (requires { entry.stack; }) {
    return {entry.stack};
  } else if constexpr (requires { entry.failure; }) {
    return {entry.failure};
  } else if constexpr (requires { entry.text + uint64_t{0}; }) {
    return {entry.text};
  } else {
    return {};
  }
}

struct Recorder::Books {
  Texts texts;
  LiveState live;
  // What waits for the disk, the oldest first; entries go to the last. A page stays where it is while entries come and
  // pages begin.
  std::deque<Page> pages;
  uint64_t begun_pages = 0;
  uint64_t chapter = 0;       // the number of its first page; 0: the next entry begins one
  uint64_t retold_pages = 0;  // of the last chapter, for what lived at its begin
  uint64_t lost = 0;          // entries that no Lost entry has told yet
  bool broken = false;        // a page could not be written: the rest of its chapter cannot be read

  bool HalfFull() const { return pages.size() >= Page::kMost / 2; }
  bool HasRoom() const { return chapter != 0 && !pages.empty() && pages.back().used + kLargestEntry <= kEntryRoom; }
  // Ends the current page and begins another.
  void BeginPage(uint64_t time) {
    pages.push_back({.header = {.number = ++begun_pages, .chapter = chapter, .time = time}, .last = time});
  }
  // As many pages as it takes: without all that lives the chapter would be of no use.
  void BeginChapter(uint64_t now) {
    chapter = begun_pages + 1;
    BeginPage(now);
    live.Retell(now, [&](const auto& entry) {
      if (!HasRoom()) BeginPage(now);
      PutWithTexts(entry, now);
    });
    if (!HasRoom()) BeginPage(now);
    retold_pages = begun_pages + 1 - chapter;
  }
  // Writes the texts that the chapter has not told yet, and the entry.
  void PutWithTexts(const auto& entry, uint64_t time) {
    for (const uint64_t text : TextsOf(entry)) {
      if (!texts.MustTell(text, chapter)) continue;
      Put(Text{text, texts.TextOf(text)}, time);
      texts.Told(text, chapter);
    }
    Put(entry, time);
  }
  template <typename Entry>
  void Put(const Entry& entry, uint64_t time) {
    Page& page = pages.back();
    FieldWriter writer(page.bytes.get() + page.used, kEntryRoom - page.used);
    writer.Write(kKindOf<Entry>);
    writer.Write(time - page.last);
    writer.Write(entry);
    if (!writer.fits()) return;
    page.used += writer.used();
    page.last = time;
    // Where the page is lost, what it told to be lost is lost again.
    if constexpr (std::is_same_v<Entry, Lost>) {
      page.entries += entry.entries;
    } else {
      ++page.entries;
    }
  }
};

}  // namespace commpool::internal::recording
