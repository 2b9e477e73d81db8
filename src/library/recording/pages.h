// Pages: the pages of a recording in memory, from the first entry to the disk. Recorder owns one, and locks it.
#ifndef COMMPOOL_SRC_LIBRARY_RECORDING_PAGES_H_
#define COMMPOOL_SRC_LIBRARY_RECORDING_PAGES_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>

#include "src/library/recording/page.h"

namespace commpool::internal::recording {

class Pages {
 public:
  // The most that waits for the disk.
  static constexpr size_t kMost = 64;

  struct Page {
    PageHeader header;
    uint64_t entries = 0;
    size_t used = 0;
    size_t written = 0;  // of `used`, on the disk
    uint64_t last = 0;   // the time of the last entry
    std::unique_ptr<char[]> bytes = std::make_unique_for_overwrite<char[]>(kEntryRoom);

    std::string_view Filled(size_t bytes_used) const { return {bytes.get(), bytes_used}; }
  };

  // The page that entries go to; null before the first.
  Page* current() { return open_ ? &waiting_.back() : nullptr; }
  bool full() const { return waiting_.size() >= kMost; }
  bool half_full() const { return waiting_.size() >= kMost / 2; }
  uint64_t numbers() const { return numbers_; }
  // Ends the current page and begins another.
  Page& Begin(uint64_t chapter, uint64_t time) {
    waiting_.emplace_back().header = {.number = numbers_ + 1, .chapter = chapter, .time = time};
    ++numbers_;
    open_ = true;
    waiting_.back().last = time;
    return waiting_.back();
  }

  // The page to write next, and whether no entry comes to it any more; null where nothing waits. It stays where it is
  // while entries come and pages begin.
  Page* Oldest() { return waiting_.empty() ? nullptr : &waiting_.front(); }
  bool OldestIsEnded() const { return waiting_.size() > 1; }
  void DropOldest() { waiting_.pop_front(); }

 private:
  std::deque<Page> waiting_;
  uint64_t numbers_ = 0;  // of pages begun so far
  bool open_ = false;
};

}  // namespace commpool::internal::recording

#endif  // COMMPOOL_SRC_LIBRARY_RECORDING_PAGES_H_
