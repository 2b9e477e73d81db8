// What a recorder has in memory, under its lock: pages, texts, and what lives in the pools.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

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
  template <typename Entry>
  void Apply(const Entry&, uint64_t) {}
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
  template <typename Tell>
  void Retell(uint64_t now, Tell tell) const {
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
  template <typename Entry>
  static RegistrationKey KeyOf(const Entry& entry) {
    return {entry.pool, entry.communicator, entry.address};
  }

  std::map<uint64_t, Dated<PoolMade>> pools_;
  std::map<uint64_t, Dated<SegmentMade>> segments_;  // by address
  std::unordered_map<uint64_t, Dated<BlockServed>> blocks_;
  std::map<RegistrationKey, Dated<Registered>> registrations_;
  std::map<uint64_t, Dated<SpanBegan>> spans_;
};

struct Recorder::Books {
  Texts texts;
  LiveState live;
  // What waits for the disk, the oldest first; entries go to the last. A page stays where it is while entries come and
  // pages begin.
  std::deque<Page> pages;
};

}  // namespace commpool::internal::recording
