// What a report finds by itself: a sentence each, and the place where the page opens.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/report/model.h"

namespace commpool::internal::report {

// The gravest first: memory that ran out, then ranks that hold far more of a pool than the others. REQUIRES: aligned
// clocks.
std::vector<FindingModel> FindTrouble(const ReportModel& report);
// The first call that differs; nothing where ranks agree. The page shows it on its own.
std::optional<std::string> DescribeDifference(const ReportModel& report);
// Of each budget the rank and device that used most: "budget kv: 40 GiB of 48 GiB at most, on device 0 of rank 3".
std::vector<std::string> DescribeBudgets(const ReportModel& report);

}  // namespace commpool::internal::report
