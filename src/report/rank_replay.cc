#include "src/report/rank_replay.h"

#include <algorithm>

#include "src/report/words.h"

namespace commpool::internal::report {

void RankReplay::Take(int64_t time, const recording::Call& entry) {
  eras_.Reach(time);
  const uint32_t pool = pools_.IndexOf(entry.pool);
  if (pool == kNone) return;
  const PoolModel& model = pools_.ModelOf(pool);
  if (model.home == 0) return;
  calls_->Take({model.home, model.channel}, entry.number, texts_.TextOf(entry.text), entry.value);
}

void RankReplay::Take(int64_t time, const recording::Lost& entry) {
  eras_.Reach(time);
  eras_.Lose();
  lost_ += entry.entries;
}

PeakMoment RankReplay::Finish() {
  pools_.Finish();
  spans_.Finish();
  RankModel& rank = report_->ranks[rank_];
  rank.end = std::max(rank.begin, eras_.last());
  rank.peak.time = pools_.peak().time;
  rank.peak.bytes = pools_.peak().bytes;
  if (lost_ > 0) {
    rank.notes.push_back("entries that are missing, because the disk was full or too slow: " + InThousands(lost_));
  }
  return pools_.peak();
}

}  // namespace commpool::internal::report
