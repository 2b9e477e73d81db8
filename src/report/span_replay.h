// Replays what takes time: agreements, sleeps, captures, scopes, searches, growths.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "src/report/eras.h"
#include "src/report/kept.h"
#include "src/report/model.h"
#include "src/report/pool_replay.h"

namespace commpool::internal::report {

class SpanReplay {
 public:
  SpanReplay(ReportModel& report, uint32_t rank, Kept& kept, const ChapterTexts& texts, const Eras& eras)
      : report_(&report), rank_(rank), kept_(&kept), texts_(&texts), eras_(&eras) {}

  void Take(int64_t time, const recording::SpanBegan& entry, const PoolReplay& pools);
  void Take(int64_t time, const recording::SpanEnded& entry);
  void Finish();

 private:
  struct Open {
    EventModel event;
    size_t era = 0;
    Life life() const { return {event.from, era}; }
  };

  RankModel& rank() const { return report_->ranks[rank_]; }
  void End(EventModel event);
  void NoteSleep(const EventModel& event);
  void NoteMeeting(const EventModel& event);

  ReportModel* report_;
  uint32_t rank_;
  Kept* kept_;
  const ChapterTexts* texts_;
  const Eras* eras_;
  std::unordered_map<uint64_t, Open> open_;  // by span
  uint64_t stride_ = 1;                      // agreements with numbers that it divides are kept as meetings
};

}  // namespace commpool::internal::report
