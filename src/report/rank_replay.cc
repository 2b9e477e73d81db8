#include "src/report/rank_replay.h"

#include <algorithm>

#include "src/report/words.h"

namespace commpool::internal::report {

void RankReplay::Take(int64_t time, const recording::Call& entry) {
  book_.Settle(time);
  const uint32_t pool = pools_.IndexOf(entry.pool);
  if (pool == kNone) return;
  const PoolModel& model = pools_.ModelOf(pool);
  if (model.home == 0) return;
  const Channel channel = {model.home, model.channel};
  calls_->Take(channel, entry.number, book_.texts().TextOf(entry.text), entry.value);
  LastCalls& last = last_calls_[channel];
  last.pool = model.name;
  last.calls.push_back({entry.number, time, entry.value, book_.texts().IndexOf(entry.text), kNoText});
  if (last.calls.size() > LastCalls::kMost) last.calls.pop_front();
}

// Its own call comes before a block.
void RankReplay::Locate(const recording::BlockServed& entry) {
  const uint32_t pool = pools_.IndexOf(entry.pool);
  if (pool == kNone || entry.stack == 0) return;
  const PoolModel& model = pools_.ModelOf(pool);
  const auto last = last_calls_.find({model.home, model.channel});
  if (last == last_calls_.end() || last->second.calls.back().value != entry.bytes) return;
  last->second.calls.back().stack = book_.texts().IndexOf(entry.stack);
}

void RankReplay::Finish() {
  book_.Finish();
  pools_.Finish();
  spans_.Finish();
  RankModel& rank = report_->ranks[rank_];
  rank.end = std::max(rank.begin, book_.eras().last());
  if (lost_ == 0) return;
  rank.notes.push_back("entries that are missing, because the disk was full or too slow: " + InThousands(lost_));
}

}  // namespace commpool::internal::report
