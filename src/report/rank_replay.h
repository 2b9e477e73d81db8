// Replays one recording into its rank's part of the model.
#ifndef COMMPOOL_SRC_REPORT_RANK_REPLAY_H_
#define COMMPOOL_SRC_REPORT_RANK_REPLAY_H_

#include <cstdint>

#include "src/report/call_comparison.h"
#include "src/report/eras.h"
#include "src/report/kept.h"
#include "src/report/model.h"
#include "src/report/pool_replay.h"
#include "src/report/recording_reader.h"
#include "src/report/span_replay.h"
#include "src/report/texts.h"

namespace commpool::internal::report {

// A taker of entries (page_entries.h).
class RankReplay {
 public:
  RankReplay(ReportModel& report, uint32_t rank, Kept& kept, CallComparison& calls)
      : report_(&report),
        rank_(rank),
        texts_(report.texts),
        pools_(report, rank, kept, texts_, eras_),
        spans_(report, rank, kept, texts_, eras_),
        calls_(&calls) {}
  RankReplay(const RankReplay&) = delete;
  RankReplay& operator=(const RankReplay&) = delete;

  void BeginChapter(int64_t time, Before before) {
    texts_.Clear();
    const bool gap = eras_.BeginChapter(before);
    eras_.Reach(time);
    if (gap) pools_.BeginEra(time);
  }
  void Take(int64_t, const recording::Text& entry) { texts_.Learn(entry.number, entry.text); }
  void Take(int64_t time, const recording::SpanBegan& entry) {
    eras_.Reach(time);
    spans_.Take(time, entry, pools_);
  }
  void Take(int64_t time, const recording::SpanEnded& entry) {
    eras_.Reach(time);
    spans_.Take(time, entry);
  }
  void Take(int64_t time, const recording::Call& entry);
  void Take(int64_t time, const recording::Lost& entry);
  // All others are about pools.
  template <typename Entry>
  void Take(int64_t time, const Entry& entry) {
    eras_.Reach(time);
    pools_.Take(time, entry);
  }

  // Ends the rank's part; returns its peak, whose holders a second look finds.
  PeakMoment Finish();

 private:
  ReportModel* report_;
  uint32_t rank_;
  ChapterTexts texts_;
  Eras eras_;
  PoolReplay pools_;
  SpanReplay spans_;
  CallComparison* calls_;
  uint64_t lost_ = 0;
};

}  // namespace commpool::internal::report

#endif  // COMMPOOL_SRC_REPORT_RANK_REPLAY_H_
