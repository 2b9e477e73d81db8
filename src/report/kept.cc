#include "src/report/kept.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace commpool::internal::report {

void Kept::LeaveOut(const KeptBlock& block) {
  LeftOut& left_out = report_->ranks[block.rank].pools[block.pool].left_out;
  ++left_out.blocks;
  left_out.bytes += block.block.bytes;
}

void Kept::Offer(uint32_t rank, uint32_t pool, const BlockModel& block, int64_t until) {
  const double lived = static_cast<double>(std::max<int64_t>(until - block.from, 0)) + 1;
  blocks_.Offer({static_cast<double>(block.bytes) * lived, rank, pool, block},
                [&](const KeptBlock& left) { LeaveOut(left); });
}

void Kept::Offer(uint32_t rank, EventModel event) {
  const bool telling = event.to == kUnknown || event.outcome == Outcome::kFailed;
  const double weight = telling ? std::numeric_limits<double>::infinity() : static_cast<double>(event.to - event.from);
  events_.Offer({weight, rank, std::move(event)},
                [&](const KeptEvent& left) { ++report_->ranks[left.rank].events_left_out; });
}

void Kept::PutIntoReport() {
  for (const KeptBlock& kept : blocks_.Take([&](const KeptBlock& left) { LeaveOut(left); })) {
    report_->ranks[kept.rank].pools[kept.pool].blocks.push_back(kept.block);
  }
  for (KeptEvent& kept : events_.Take([&](const KeptEvent& left) { ++report_->ranks[left.rank].events_left_out; })) {
    report_->ranks[kept.rank].events.push_back(std::move(kept.event));
  }
  for (RankModel& rank : report_->ranks) {
    const auto earlier = [](const auto& a, const auto& b) { return a.from < b.from; };
    std::stable_sort(rank.events.begin(), rank.events.end(), earlier);
    for (PoolModel& pool : rank.pools) {
      std::sort(pool.blocks.begin(), pool.blocks.end(), [](const BlockModel& a, const BlockModel& b) {
        return std::tie(a.from, a.segment, a.offset) < std::tie(b.from, b.segment, b.offset);
      });
    }
  }
}

}  // namespace commpool::internal::report
