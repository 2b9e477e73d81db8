// Reads a recording: one process's file, as src/library/recording writes it. Whatever a file holds, reading it ends in
// entries, in notes about what is missing, or in an error in words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/file_descriptor.h"
#include "src/library/base/function_ref.h"
#include "src/library/recording/entries.h"
#include "src/library/recording/recording_file.h"
#include "src/report/page_entries.h"

namespace commpool::internal::report {

class RecordingReader {
 public:
  // Reads all pages once: which of them are whole, and which hold what can be understood. Errors name the file.
  static Result<RecordingReader> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const recording::ProcessFacts& facts() const { return facts_; }
  // ns of the process's steady clock: nothing before is known.
  int64_t begin() const { return begin_; }
  // Sentences on what is missing.
  const std::vector<std::string>& notes() const { return notes_; }

  // Hands all entries to the taker, in order: see TakeEntries. Before the first entry of a chapter it calls
  // `taker.BeginChapter(time, Before)`. It returns how many pages could not be understood, although they are whole: all
  // where the file went since.
  template <typename Taker>
  uint64_t Read(Taker& taker) const {
    uint64_t not_understood = 0;
    Before before = Before::kNothing;
    const uint64_t gone = ReadPages([&](const recording::PageHeader& header, std::string_view entries, Before gap) {
      if (gap != Before::kWhole) before = gap;
      if (header.number == header.chapter) {
        taker.BeginChapter(TimeOf(header.time), before);
        before = Before::kWhole;
      }
      // What follows in this chapter may need what is missing now.
      if (TakeEntries(entries, TimeOf(header.time), taker)) return true;
      ++not_understood;
      before = Before::kGap;
      return false;
    });
    return gone + not_understood;
  }

 private:
  struct Place {
    recording::PageHeader header;
    uint64_t offset = 0;
  };
  using TakePage = FunctionRef<bool(const recording::PageHeader&, std::string_view, Before)>;

  explicit RecordingReader(std::string path) : path_(std::move(path)) {}

  Status ReadFacts(const FileDescriptor& file);
  void FindPages(const FileDescriptor& file);
  void NoteWhatIsMissing(uint64_t damaged);
  // The bytes of a page that are there, at most kPageBytes.
  static std::string_view Load(const FileDescriptor& file, uint64_t offset, std::string& buffer);
  // Calls `take` for the pages from the first whole chapter on. After a gap, or where `take` returns false, it goes on
  // with the next chapter. Returns how many pages it could not read, because the file went.
  uint64_t ReadPages(TakePage take) const;

  std::string path_;  // open only while it is read: a program may have more ranks than a process may open files
  recording::ProcessFacts facts_;
  uint64_t recording_ = 0;
  std::vector<Place> pages_;  // by number
  int64_t begin_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace commpool::internal::report
