// Replays one recording into its rank's part of the model.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <type_traits>

#include "src/report/call_comparison.h"
#include "src/report/kept.h"
#include "src/report/memory_book.h"
#include "src/report/model.h"
#include "src/report/pool_replay.h"
#include "src/report/span_replay.h"

namespace commpool::internal::report {

// The last calls of a symmetric pool on one rank. Ranks whose calls differ hear of it soon, and then make no more.
struct LastCalls {
  static constexpr size_t kMost = 1 << 14;
  struct Made {
    uint64_t number = 0;
    int64_t time = 0;
    uint64_t value = 0;
    uint32_t text = kNoText;
    uint32_t stack = kNoText;  // where the program made it, as its block's entry tells
  };
  uint32_t pool = kNoText;  // its name
  std::deque<Made> calls;
};

// A taker of entries (page_entries.h).
class RankReplay {
 public:
  RankReplay(ReportModel& report, uint32_t rank, Kept& kept, CallComparison& calls)
      : report_(&report),
        rank_(rank),
        book_(report.texts, pools_),
        pools_(report, rank, kept, book_),
        spans_(report, rank, kept, book_.texts(), book_.eras()),
        calls_(&calls) {}
  RankReplay(const RankReplay&) = delete;
  RankReplay& operator=(const RankReplay&) = delete;

  void BeginChapter(int64_t time, Before before) {
    if (book_.BeginChapter(time, before)) pools_.BeginEra(time);
  }
  void Take(int64_t time, const recording::SpanBegan& entry) {
    book_.Settle(time);
    spans_.Take(time, entry, pools_);
  }
  void Take(int64_t time, const recording::SpanEnded& entry) {
    book_.Settle(time);
    spans_.Take(time, entry);
  }
  void Take(int64_t time, const recording::Call& entry);
  void Take(int64_t time, const recording::Lost& entry) {
    book_.Take(time, entry);
    lost_ += entry.entries;
  }
  template <typename Entry>
  void Take(int64_t time, const Entry& entry) {
    if constexpr (requires { pools_.Take(time, entry); }) {
      pools_.Take(time, entry);
    } else {
      book_.Take(time, entry);
    }
    if constexpr (std::is_same_v<Entry, recording::BlockServed>) Locate(entry);
  }

  // Ends the rank's part.
  void Finish();
  std::map<Channel, LastCalls>& last_calls() { return last_calls_; }

 private:
  void Locate(const recording::BlockServed& entry);

  ReportModel* report_;
  uint32_t rank_;
  MemoryBook book_;
  PoolReplay pools_;
  SpanReplay spans_;
  CallComparison* calls_;
  std::map<Channel, LastCalls> last_calls_;
  uint64_t lost_ = 0;
};

}  // namespace commpool::internal::report
