// Writes recordings as a recorder would, entry by entry: with chapters that retell what lives.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "src/library/base/fields.h"
#include "src/library/recording/entries.h"
#include "src/library/recording/recording_file.h"

namespace commpool::internal::report {

class RecordingWriter {
 public:
  // Errors throw.
  RecordingWriter(const std::string& directory, const recording::ProcessFacts& facts);
  ~RecordingWriter() { Flush(); }
  RecordingWriter(const RecordingWriter&) = delete;
  RecordingWriter& operator=(const RecordingWriter&) = delete;

  // The number of a text, which it writes where this chapter has not had it.
  uint64_t Text(int64_t time, const std::string& text);
  // Texts of the entry are numbers of `Text`. Times never fall.
  template <typename Entry>
  void Write(int64_t time, const Entry& entry) {
    BeginChapterIfFull(time);
    Remember(time, entry);
    Put(time, entry);
  }
  // Begins a chapter with the next entry.
  void EndChapter() { in_chapter_ = false; }
  // The next page gets no place in the file.
  void LosePage();
  void Flush();
  const std::string& path() const { return file_.path(); }

 private:
  template <typename Entry>
  struct Living {
    int64_t since = 0;
    Entry entry;
  };

  void Remember(int64_t time, const recording::PoolMade& entry) { pools_[entry.pool] = {time, entry}; }
  void Remember(int64_t, const recording::PoolGone& entry);
  void Remember(int64_t time, const recording::SegmentMade& entry) {
    segments_[entry.address] = {time, entry};
    addresses_[entry.pool].insert(entry.address);
  }
  void Remember(int64_t, const recording::SegmentGone& entry) { segments_.erase(entry.address); }
  void Remember(int64_t time, const recording::BlockServed& entry) {
    blocks_[entry.address] = {time, entry};
    addresses_[entry.pool].insert(entry.address);
  }
  void Remember(int64_t, const recording::BlockFreed& entry) { blocks_.erase(entry.address); }
  void Remember(int64_t time, const recording::SpanBegan& entry) { spans_[entry.span] = {time, entry}; }
  void Remember(int64_t, const recording::SpanEnded& entry) { spans_.erase(entry.span); }
  template <typename Entry>
  void Remember(int64_t, const Entry&) {}

  template <typename Entry>
  void Put(int64_t time, const Entry& entry);
  template <typename Entry>
  void RetellAll(int64_t time, const std::map<uint64_t, Living<Entry>>& living);
  void BeginChapterIfFull(int64_t time);
  void BeginPage(int64_t time);

  recording::RecordingFile file_;
  recording::PageHeader header_;
  std::array<char, recording::kEntryRoom> entries_;
  size_t used_ = 0;
  int64_t last_ = 0;
  bool in_chapter_ = false;
  bool lose_ = false;
  std::map<std::string, uint64_t> texts_;
  std::map<uint64_t, std::string> text_of_;
  std::map<uint64_t, Living<recording::PoolMade>> pools_;
  std::map<uint64_t, Living<recording::SegmentMade>> segments_;
  std::map<uint64_t, Living<recording::BlockServed>> blocks_;
  std::map<uint64_t, std::set<uint64_t>> addresses_;  // that a pool has had, by its handle
  std::map<uint64_t, Living<recording::SpanBegan>> spans_;
};

}  // namespace commpool::internal::report
