// Writes recordings as a recorder would, entry by entry: with chapters that retell what lives.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "src/library/base/fields.h"
#include "src/library/recording/books.h"
#include "src/library/recording/entries.h"
#include "src/library/recording/recording_file.h"

namespace commpool::internal::report {

class RecordingWriter {
 public:
  // Errors throw.
  RecordingWriter(const std::string& directory, const recording::ProcessFacts& facts)
      : file_(recording::RecordingFile::Make(directory, facts).value()), last_(facts.steady_clock) {}
  ~RecordingWriter() { Flush(); }
  RecordingWriter(const RecordingWriter&) = delete;
  RecordingWriter& operator=(const RecordingWriter&) = delete;

  // The number of a text. Each chapter tells it with the first entry that names it.
  uint64_t Text(const std::string& text) { return texts_.NumberOf(text); }
  // Times never fall.
  template <typename Entry>
  void Write(int64_t time, const Entry& entry) {
    const auto now = static_cast<uint64_t>(time);
    const bool is_full = header_.number - header_.chapter + 1 >= file_.pages_of_a_chapter() && used_ > room_.size() / 2;
    if (!in_chapter_ || is_full) BeginChapter(now);
    live_.Apply(entry, now);
    Put(now, entry);
  }
  // Begins a chapter with the next entry.
  void EndChapter() { in_chapter_ = false; }
  // The next page gets no place in the file.
  void LosePage() {
    if (!in_chapter_) BeginChapter(last_);
    BeginPage(last_);
    lose_ = true;
  }
  const std::string& path() const { return file_.path(); }

 private:
  void BeginChapter(uint64_t now) {
    in_chapter_ = true;
    BeginPage(now);
    header_.chapter = header_.number;
    live_.Retell(now, [&](const auto& entry) { Put(now, entry); });
  }
  void BeginPage(uint64_t now) {
    Flush();
    ++header_.number;
    header_.time = last_ = now;
    used_ = 0;
  }
  void Flush() {
    if (header_.number == 0 || std::exchange(lose_, false)) return;
    file_.Write(header_, {room_.data(), used_}, 0).or_throw();
  }
  // The texts that the chapter has not told yet, and the entry.
  template <typename Entry>
  void Put(uint64_t now, const Entry& entry) {
    for (const uint64_t text : recording::TextsOf(entry)) {
      if (!texts_.MustTell(text, header_.chapter)) continue;
      texts_.Told(text, header_.chapter);
      Put(now, recording::Text{text, texts_.TextOf(text)});
    }
    if (used_ + recording::kLargestEntry > room_.size()) BeginPage(now);
    FieldWriter writer(room_.data() + used_, room_.size() - used_);
    writer.Write(recording::kKindOf<Entry>);
    writer.Write(now - last_);
    writer.Write(entry);
    used_ += writer.used();
    last_ = now;
  }

  recording::RecordingFile file_;
  recording::PageHeader header_;
  recording::Texts texts_;
  recording::LiveState live_;
  std::array<char, recording::kEntryRoom> room_;
  size_t used_ = 0;
  uint64_t last_;
  bool in_chapter_ = false;
  bool lose_ = false;
};

}  // namespace commpool::internal::report
