// What only a second reading of a recording can tell, when the first has found the moments that matter: who held the
// memory at the peak, and how a rank made the calls that differ.
#ifndef COMMPOOL_SRC_REPORT_SECOND_LOOK_H_
#define COMMPOOL_SRC_REPORT_SECOND_LOOK_H_

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>

#include "src/report/call_comparison.h"
#include "src/report/eras.h"
#include "src/report/model.h"
#include "src/report/pool_members.h"
#include "src/report/pool_replay.h"
#include "src/report/texts.h"

namespace commpool::internal::report {

// A taker of entries (page_entries.h). It puts the holders into the rank's peak itself.
class SecondLook {
 public:
  SecondLook(ReportModel& report, uint32_t rank, const PeakMoment& peak, const CallComparison& calls)
      : report_(&report), rank_(rank), texts_(report.texts), peak_(peak), calls_(&calls) {}
  SecondLook(const SecondLook&) = delete;
  SecondLook& operator=(const SecondLook&) = delete;

  void BeginChapter(int64_t time, Before before);
  void Take(int64_t, const recording::Text& entry) { texts_.Learn(entry.number, entry.text); }
  void Take(int64_t time, const recording::PoolMade& entry);
  void Take(int64_t time, const recording::PoolGone& entry);
  void Take(int64_t time, const recording::BlockServed& entry);
  void Take(int64_t time, const recording::BlockFreed& entry);
  void Take(int64_t time, const recording::PoolBytes& entry);
  void Take(int64_t time, const recording::SmallBlocks& entry);
  void Take(int64_t time, const recording::Call& entry);
  void Take(int64_t time, const recording::Lost& entry);

  // The rank's own calls at the numbers that differ.
  const std::map<Channel, DifferingCall>& calls() const { return found_calls_; }
  // The names of the pools of these.
  const std::map<Channel, uint32_t>& pools() const { return pools_of_calls_; }

 private:
  struct Held {
    uint64_t pool = 0;  // its handle
    uint64_t bytes = 0;
    uint32_t stack = kNoText;
    size_t era = 0;
  };
  struct HeldPool {
    Channel channel;
    uint32_t name = kNoText;
    uint64_t allocated = 0;
    std::map<uint64_t, uint64_t> cached;  // blocks by their bytes
  };
  using PoolAndStack = std::pair<uint64_t, uint32_t>;
  using Indices = std::unordered_map<uint64_t, uint32_t>;  // of pools by handle

  bool BeforePeak() const { return place_ <= peak_.place; }
  // Lists the holders where this entry made the peak.
  void Leave(int64_t time);
  void ListHolders();
  void ListStacks(const Indices& indices, std::map<uint64_t, uint64_t>& listed);
  void ListSmallBlocks(const Indices& indices, const std::map<uint64_t, uint64_t>& listed);
  // Of the pools that live at the peak.
  Indices IndicesAtPeak() const;
  PeakModel& model() const { return report_->ranks[rank_].peak; }

  ReportModel* report_;
  uint32_t rank_;
  ChapterTexts texts_;
  PeakMoment peak_;
  const CallComparison* calls_;
  Eras eras_;
  uint64_t place_ = 0;                         // as PoolReplay counts
  std::unordered_map<uint64_t, Held> blocks_;  // by address
  PoolMembers members_;                        // blocks by the pool's handle
  std::map<uint64_t, HeldPool> pools_;         // by handle
  std::map<Channel, DifferingCall> found_calls_;
  std::map<Channel, uint32_t> pools_of_calls_;
};

}  // namespace commpool::internal::report

#endif  // COMMPOOL_SRC_REPORT_SECOND_LOOK_H_
