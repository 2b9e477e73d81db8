// Which blocks and events of all ranks are shown one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "src/report/largest.h"
#include "src/report/model.h"

namespace commpool::internal::report {

struct Limits {
  size_t blocks = 1'000'000;
  size_t events = 200'000;
  size_t series_buckets = 60'000;  // of all pools
  size_t small_slices = 40'000;    // likewise
};

class Kept {
 public:
  Kept(ReportModel& report, const Limits& limits) : report_(&report), blocks_(limits.blocks), events_(limits.events) {}

  // The largest by bytes x time; `until` is the end of a block that still lives.
  void Offer(uint32_t rank, uint32_t pool, const BlockModel& block, int64_t until);
  // Those that failed or never ended, then the longest.
  void Offer(uint32_t rank, EventModel event);
  // Puts what is kept into the report, each rank's and pool's in the order of time.
  void PutIntoReport();

 private:
  struct KeptBlock {
    double weight = 0;
    uint32_t rank = 0;
    uint32_t pool = 0;
    BlockModel block;
  };
  struct KeptEvent {
    double weight = 0;
    uint32_t rank = 0;
    EventModel event;
  };
  void LeaveOut(const KeptBlock& block);

  ReportModel* report_;
  Largest<KeptBlock> blocks_;
  Largest<KeptEvent> events_;
};

}  // namespace commpool::internal::report
